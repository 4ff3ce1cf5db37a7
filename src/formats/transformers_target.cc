#include "formats/transformers_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/hash.h"
#include "formats/json.h"
#include "formats/safetensors_folder.h"
#include "formats/tokenizer_config.h"
#include "formats/tokenizer_file.h"

namespace eaglet {
namespace {

namespace fs = std::filesystem;

// model_type of families whose head is a plain matrix behind a plain RMS norm. Read from transformers 5.
// Left out: Gemma (norm scale + 1, capped logits), Cohere and Granite (scaled logits), MiniCPM (scaled).
constexpr const char* kFamilies[] = {"llama",       "mistral",  "mixtral",     "qwen2",
                                     "qwen2_moe",   "qwen3",    "qwen3_moe",   "deepseek_v2",
                                     "deepseek_v3", "kimi_k2",  "kimi_k25",    "gpt_oss",
                                     "phi3",        "olmo2",    "smollm3",     "glm4_moe",
                                     "minimax_m2",  "seed_oss", "llama4_text", "hunyuan_v1_dense",
                                     "ernie4_5"};

std::string config_of(const std::string& path) {
  return is_directory(path) ? path + "/config.json" : path;
}

Status refuse(const std::string& path, const std::string& what, const std::string& todo) {
  return Status(StatusCode::kConfig, what, path, todo);
}

std::optional<std::int64_t> number(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_number_integer()) return std::nullopt;
  return it->get<std::int64_t>();
}

Result<std::int64_t> size_of(const Json& json, const char* key, const std::string& path) {
  const auto value = number(json, key);
  if (value && *value > 0 && *value <= (std::int64_t{1} << 31)) return *value;
  return Status(StatusCode::kDataLoss, std::string("the config has no usable ") + key, path,
                "give a complete transformers folder");
}

/// An id or a list of ids.
void add_ids(const Json& json, const char* key, std::set<std::int32_t>* ids) {
  const auto it = json.find(key);
  if (it == json.end()) return;
  const auto add = [ids](const Json& id) {
    if (id.is_number_unsigned() && id.get<std::uint64_t>() <= INT32_MAX) ids->insert(id.get<std::int32_t>());
  };
  if (it->is_array())
    for (const Json& id : *it) add(id);
  else
    add(*it);
}

Json optional_json(const std::string& path) {
  const auto json = read_json_file(path);
  return json.ok() && json->is_object() ? *json : Json::object();
}

/// Control tokens: tokenizer.json's added tokens that are special; else those of tokenizer_config.json. Files
/// that are not there, or damaged, name none: who needs the tokenizer says so.
std::set<std::int32_t> special_ids(const std::string& folder, std::int32_t* eos) {
  std::set<std::int32_t> ids;
  TokenizerConfig config;
  if (auto read = read_tokenizer_config(folder); read.ok()) config = std::move(*read);
  const auto tokenizer = read_tokenizer_file(folder + "/tokenizer.json");
  if (tokenizer.ok()) {
    for (const AddedToken& token : tokenizer->added) {
      if (token.special) ids.insert(token.id);
      if (token.text == config.eos_token) *eos = token.id;
    }
    return ids;
  }
  for (const auto& [id, token] : config.added_tokens) {
    if (token.special) ids.insert(id);
    if (token.text == config.eos_token) *eos = id;
  }
  return ids;
}

void read_tokens(const Json& top, const Json& text, const std::string& folder, TargetFacts* facts) {
  const Json generation = optional_json(folder + "/generation_config.json");
  std::set<std::int32_t> ends, begins;
  for (const Json* json : {&top, &text, &generation}) {
    add_ids(*json, "eos_token_id", &ends);
    add_ids(*json, "bos_token_id", &begins);
  }
  const auto inside = [&](std::int32_t id) { return id < facts->vocab; };
  // Servers stop at the tokenizer's own end token too.
  std::int32_t tokenizer_eos = -1;
  for (const std::int32_t id : special_ids(folder, &tokenizer_eos))
    if (inside(id)) facts->special_ids.push_back(id);
  if (tokenizer_eos >= 0) ends.insert(tokenizer_eos);
  std::erase_if(ends, [&](std::int32_t id) { return !inside(id); });
  facts->end_ids.assign(ends.begin(), ends.end());
  if (!ends.empty()) facts->eos_id = *ends.begin();
  std::set<std::int32_t> first;
  add_ids(text, "eos_token_id", &first);
  if (first.size() == 1 && inside(*first.begin())) facts->eos_id = *first.begin();
  if (!begins.empty() && inside(*begins.begin())) facts->bos_id = *begins.begin();
}

Result<SafetensorsFolder::Tensor> find_one(SafetensorsFolder& folder, const char* name) {
  for (const char* prefix :
       {"", "model.", "language_model.", "language_model.model.", "model.language_model."})
    if (folder.has(std::string(prefix) + name)) return folder.find(std::string(prefix) + name);
  return Status(StatusCode::kNotFound, fmt::format("there is no {} under any of its usual names", name),
                folder.directory(), "give a complete transformers folder");
}

/// The three tensors that training shares with the target, by shape, type, and a sample of their bytes.
std::string identity_of(const TargetFacts& facts, const std::string& folder) {
  std::string text =
      fmt::format("transformers\n{}\n{} {} {} {} {} {}\n", facts.architecture, facts.num_layers, facts.hidden,
                  facts.vocab, facts.num_heads, facts.num_kv_heads, facts.tied_head);
  auto weights = SafetensorsFolder::open(folder);
  if (!weights.ok()) return hex64(xxh64(text));
  for (const char* name : {"embed_tokens.weight", "lm_head.weight", "norm.weight"}) {
    const auto tensor = find_one(*weights, name);
    if (!tensor.ok()) continue;
    constexpr std::uint64_t kSampledBytes = 4096;
    const std::uint64_t sampled = std::min(kSampledBytes, tensor->entry->bytes);
    const std::byte* data = tensor->file->data(*tensor->entry);
    text += fmt::format("{} {} {} {:016x} {:016x}\n", name, dtype_name(tensor->entry->dtype),
                        fmt::join(tensor->entry->shape, "x"), xxh64(data, sampled),
                        xxh64(data + tensor->entry->bytes - sampled, sampled));
  }
  return hex64(xxh64(text));
}

Result<const Json*> text_config(const Json& top, const std::string& path) {
  if (!top.is_object()) return Status(StatusCode::kDataLoss, "not a model config", path);
  const auto nested = top.find("text_config");
  const Json* text = nested != top.end() && nested->is_object() ? &*nested : &top;
  const auto type = text->find("model_type");
  if (type == text->end() || !type->is_string())
    return refuse(path, "the config has no model_type", "give the config.json of a language model");
  for (const char* family : kFamilies)
    if (*type == family) return text;
  return refuse(path, "a model of type " + json_line(*type) + " cannot be a target here",
                fmt::format("known: {}; or give its GGUF", fmt::join(kFamilies, ", ")));
}

}  // namespace

bool is_transformers_target(const std::string& path) {
  return is_directory(path) || path.ends_with(".json");
}

std::string transformers_folder(const std::string& path) {
  if (is_directory(path)) return path;
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Result<TargetFacts> read_transformers_facts(const std::string& path) {
  const std::string config_path = config_of(path), folder = transformers_folder(path);
  if (is_directory(path) && !path_exists(config_path))
    return Status(StatusCode::kDataLoss, "a folder without config.json is no model", path,
                  "give a GGUF file or a transformers folder");
  EAGLET_ASSIGN_OR_RETURN(const Json top, read_json_file(config_path));
  EAGLET_ASSIGN_OR_RETURN(const Json* found, text_config(top, config_path));
  const Json& text = *found;
  TargetFacts facts;
  facts.path = path;
  facts.architecture = text["model_type"].get<std::string>();
  facts.name = fs::path(fs::absolute(folder)).lexically_normal().filename().string();
  EAGLET_ASSIGN_OR_RETURN(facts.num_layers, size_of(text, "num_hidden_layers", config_path));
  EAGLET_ASSIGN_OR_RETURN(facts.hidden, size_of(text, "hidden_size", config_path));
  EAGLET_ASSIGN_OR_RETURN(facts.vocab, size_of(text, "vocab_size", config_path));
  EAGLET_ASSIGN_OR_RETURN(facts.num_heads, size_of(text, "num_attention_heads", config_path));
  facts.num_kv_heads = number(text, "num_key_value_heads").value_or(facts.num_heads);
  facts.head_dim = number(text, "head_dim").value_or(facts.hidden / facts.num_heads);
  if (const auto latent = number(text, "v_head_dim"); latent && *latent > 0) {
    facts.head_dim = *latent;  // what a draft would use is the decoded head
    facts.num_kv_heads = facts.num_heads;
  }
  facts.intermediate = number(text, "intermediate_size").value_or(3 * facts.hidden);
  facts.max_position_embeddings = number(text, "max_position_embeddings").value_or(0);
  const auto eps = text.find("rms_norm_eps");
  facts.rms_norm_eps = eps != text.end() && eps->is_number() ? eps->get<double>() : 1e-6;
  if (!(facts.rms_norm_eps > 0) || facts.rms_norm_eps > 1)
    return Status(StatusCode::kDataLoss, "rms_norm_eps is not possible", config_path);
  auto rope = rope_from_json(text);
  if (!rope.ok()) return rope.status().at(config_path);
  facts.rope = *rope;
  const Json& tied = text.contains("tie_word_embeddings") ? text : top;
  facts.tied_head = tied.value("tie_word_embeddings", Json(false)) == Json(true);
  read_tokens(top, text, folder, &facts);
  facts.identity = identity_of(facts, folder);
  return facts;
}

Result<TargetWeights> read_transformers_weights(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_transformers_facts(path));
  EAGLET_ASSIGN_OR_RETURN(SafetensorsFolder folder, SafetensorsFolder::open(transformers_folder(path)));
  const auto read = [&](const char* name, std::vector<std::int64_t> shape) -> Result<std::vector<float>> {
    EAGLET_ASSIGN_OR_RETURN(const SafetensorsFolder::Tensor tensor, find_one(folder, name));
    if (tensor.entry->shape != shape)
      return Status(StatusCode::kDataLoss,
                    fmt::format("{} is [{}], the config says [{}]", tensor.entry->name,
                                fmt::join(tensor.entry->shape, ", "), fmt::join(shape, ", ")),
                    tensor.file->path(), "give weights and config of one model");
    return tensor.file->read_f32(tensor.entry->name);
  };
  TargetWeights weights;
  EAGLET_ASSIGN_OR_RETURN(weights.embed_tokens, read("embed_tokens.weight", {facts.vocab, facts.hidden}));
  if (!facts.tied_head) {
    EAGLET_ASSIGN_OR_RETURN(weights.lm_head, read("lm_head.weight", {facts.vocab, facts.hidden}));
  }
  EAGLET_ASSIGN_OR_RETURN(weights.final_norm, read("norm.weight", {facts.hidden}));
  return weights;
}

}  // namespace eaglet
