#include <fmt/format.h>

#include <filesystem>

#include "base/files.h"
#include "export/export.h"
#include "export/weights_file.h"

namespace eaglet {
namespace {

constexpr const char* kVerifierAdvice =
    "give --verifier the local transformers directory of the target (config.json, tokenizer, weights)";

// The verifier's own config: is it the target, and what does transformers call its class?
Status check_verifier(const std::string& verifier, DraftConfig* config) {
  const std::string path = verifier + "/config.json";
  if (!path_exists(path)) {
    return Status(StatusCode::kNotFound, "the verifier has no config.json", verifier, kVerifierAdvice);
  }
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  if (!json.is_object()) return Status(StatusCode::kDataLoss, "not a model config", path, kVerifierAdvice);
  const auto nested = json.find("text_config");
  const Json& text = nested != json.end() && nested->is_object() ? *nested : json;
  const auto differs = [&](const char* key, std::int64_t expected) {
    const auto field = text.find(key);
    return field != text.end() && field->is_number_integer() && field->get<std::int64_t>() != expected;
  };
  if (differs("hidden_size", config->target_hidden) || differs("vocab_size", config->vocab)) {
    return Status(
        StatusCode::kConfig,
        fmt::format("the verifier is not this draft's target (hidden_size {} and vocab_size {} are needed)",
                    config->target_hidden, config->vocab),
        path, kVerifierAdvice);
  }
  std::error_code ignored;  // a relative path would mean another folder to whoever loads the draft
  const auto absolute = std::filesystem::absolute(verifier, ignored);
  config->verifier_name = ignored ? verifier : absolute.lexically_normal().string();
  const auto classes = json.find("architectures");
  if (classes != json.end() && classes->is_array() && !classes->empty() && classes->front().is_string()) {
    config->verifier_architecture = classes->front().get<std::string>();
  }
  return {};
}

}  // namespace

const char* weight_dtype_name(WeightDtype dtype) {
  static constexpr const char* kNames[] = {"float32", "bfloat16", "float16"};
  return kNames[static_cast<std::size_t>(dtype)];
}

Status export_speculators(const DraftWeights& draft, const std::vector<float>& target_embeddings,
                          const std::string& verifier, const std::string& directory, WeightDtype dtype) {
  DraftWeights copy = draft;
  EAGLET_RETURN_IF_ERROR(check_verifier(verifier, &copy.config));
  if (copy.embed_tokens.empty()) copy.embed_tokens = target_embeddings;
  if (static_cast<std::int64_t>(copy.embed_tokens.size()) != copy.config.vocab * copy.config.hidden) {
    return Status(StatusCode::kConfig,
                  fmt::format("the target's embedding has {} numbers, the draft needs {} x {}",
                              copy.embed_tokens.size(), copy.config.vocab, copy.config.hidden),
                  {}, "give the model that the draft was trained for");
  }
  EAGLET_RETURN_IF_ERROR(make_directories(directory));
  std::vector<NamedWeight> weights = {
      {"embed_tokens.weight", {copy.config.vocab, copy.config.hidden}, copy.embed_tokens.data()}};
  for (const ParameterInfo& info : copy.table)
    weights.push_back({info.name, info.shape, copy.values.data() + info.offset});
  EAGLET_RETURN_IF_ERROR(write_weights(directory + "/model.safetensors", weights, copy.vocab, dtype));
  Json config = draft_config_to_json(copy.config);
  config["dtype"] = weight_dtype_name(dtype);
  // Only this dict becomes vLLM's draft config, and vLLM takes the width of fc from here.
  if (copy.config.num_aux() != 3)
    config["transformer_layer_config"]["num_aux_hidden_states"] = copy.config.num_aux();
  return write_json_file(directory + "/config.json", config);
}

}  // namespace eaglet
