#include <fmt/format.h>

#include "base/files.h"
#include "export/export.h"
#include "export/weights_file.h"

namespace eaglet {
namespace {

/// "layers.0." is "midlayer." in this family; further layers keep their numbers.
std::string their_name(const std::string& ours) {
  return ours.rfind("layers.0.", 0) == 0 ? "midlayer." + ours.substr(9) : ours;
}

/// The flat config of SpecForge, EAGLE and SGLang. It starts from speculators' nested one: the layer's fields
/// are the same, and both spellings of the rotary settings are in it.
Json flat_config(const DraftConfig& c, WeightDtype dtype) {
  const Json ours = draft_config_to_json(c);
  Json json = ours["transformer_layer_config"];
  json["architectures"] = {"LlamaForCausalLMEagle3"};
  json["torch_dtype"] = weight_dtype_name(dtype);
  json["draft_vocab_size"] = c.draft_vocab;
  json["use_cache"] = true;
  for (const char* flag : {"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"})
    if (ours[flag] == Json(true)) json[flag] = true;  // absent means off to every reader of this family
  if (c.target_hidden != c.hidden) json["target_hidden_size"] = c.target_hidden;
  if (c.num_aux() != 3) json["num_aux_hidden_states"] = c.num_aux();
  // vLLM and llama.cpp read the top-level list (inputs of layers), SGLang and SpecForge the nested one
  // (outputs).
  json["eagle_aux_hidden_state_layer_ids"] = c.aux_layers;
  if (c.aux_layers.front() > 0) {
    std::vector<std::int32_t> outputs = c.aux_layers;
    for (std::int32_t& id : outputs) --id;
    json["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", outputs}, {"use_aux_hidden_state", true}};
  }
  json["eaglet"] = ours["eaglet"];
  return json;
}

}  // namespace

Status export_sglang(const DraftWeights& draft, WeightDtype dtype, const std::string& directory) {
  std::vector<NamedWeight> weights;
  for (const ParameterInfo& info : draft.table)
    weights.push_back({their_name(info.name), info.shape, draft.values.data() + info.offset});
  if (!draft.embed_tokens.empty())
    weights.push_back(
        {"embed_tokens.weight", {draft.config.vocab, draft.config.hidden}, draft.embed_tokens.data()});
  EAGLET_RETURN_IF_ERROR(make_directories(directory));
  EAGLET_RETURN_IF_ERROR(write_weights(directory + "/model.safetensors", weights, draft.vocab, dtype));
  return write_json_file(directory + "/config.json", flat_config(draft.config, dtype));
}

}  // namespace eaglet
