#include "target/target_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/config_fields.h"
#include "formats/json_field.h"

namespace eaglet {
namespace {

Status unknown(const std::string& what) {
  return Status(StatusCode::kConfig, what, {},
                "the native engine knows llama, mistral, qwen2, qwen3, qwen3_moe, deepseek_v3 and kimi_k2; "
                "others run with --engine llama from a GGUF file");
}

template <class T>
T read_or(ConfigFields& fields, const char* name, T absent) {
  fields.read(name, &absent);
  return absent;
}

Status check_arithmetic(const Json& json, ConfigFields& fields) {
  const std::string act = read_or<std::string>(fields, "hidden_act", "silu");
  if (act != "silu") return unknown("\"hidden_act\": \"" + act + "\"");
  for (const char* name : {"partial_rotary_factor", "attention_multiplier", "embedding_multiplier",
                           "residual_multiplier", "logits_scaling", "logit_scale"})
    if (read_or<double>(fields, name, 1) != 1) return unknown(fmt::format("\"{}\" other than 1", name));
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"})
    if (json_field(json, name) != nullptr) return unknown(fmt::format("\"{}\"", name));
  return {};
}

void read_sizes(ConfigFields& fields, TargetConfig* c) {
  fields.read("hidden_size", &c->hidden);
  fields.read("vocab_size", &c->vocab);
  fields.read("num_hidden_layers", &c->num_layers);
  fields.read("num_attention_heads", &c->num_heads);
  c->num_kv_heads = c->num_heads;
  fields.read("num_key_value_heads", &c->num_kv_heads);
  if (c->num_heads > 0) c->head_dim = c->hidden / c->num_heads;
  fields.read("head_dim", &c->head_dim);
  fields.read("intermediate_size", &c->intermediate);
  fields.read("max_position_embeddings", &c->max_position_embeddings);
  fields.read("rms_norm_eps", &c->rms_norm_eps);
  fields.read("tie_word_embeddings", &c->tied_head);
}

// layer_types where there are some; else Mistral's one window, or Qwen2's from a layer on.
Status read_windows(const Json& json, ConfigFields& fields, TargetConfig* c) {
  const std::int64_t window = read_or<std::int64_t>(fields, "sliding_window", 0);
  const bool used = c->model_type == "mistral" || read_or(fields, "use_sliding_window", false);
  const std::int64_t first =
      c->model_type == "mistral" ? 0 : read_or<std::int64_t>(fields, "max_window_layers", 0);
  c->window.assign(static_cast<std::size_t>(c->num_layers), 0);
  const Json* types = json_field(json, "layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != c->window.size()))
    return unknown("\"layer_types\" without an entry for each layer");
  for (std::int64_t layer = 0; layer < c->num_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    bool slides = used && window > 0 && layer >= first;
    if (types != nullptr) {
      const std::string type = (*types)[at].is_string() ? (*types)[at].get<std::string>() : "";
      if (type != "full_attention" && type != "sliding_attention")
        return unknown("a layer of type \"" + type + "\"");
      slides = type == "sliding_attention";
      if (slides && window < 1) return unknown("a sliding layer without \"sliding_window\"");
    }
    if (slides) c->window[at] = window;
  }
  return {};
}

void read_latent(ConfigFields& fields, TargetConfig* c) {
  LatentConfig& l = c->latent;
  fields.read("q_lora_rank", &l.q_rank);
  fields.read("kv_lora_rank", &l.kv_rank);
  fields.read("qk_nope_head_dim", &l.nope_dim);
  fields.read("qk_rope_head_dim", &l.rope_dim);
  fields.read("v_head_dim", &l.value_dim);
  fields.read("rope_interleave", &l.rope_interleaved);
  c->num_kv_heads = c->num_heads;
  c->head_dim = l.nope_dim + l.rope_dim;
}

Status read_deepseek_experts(const Json& json, ConfigFields& fields, TargetConfig* c) {
  ExpertConfig& e = c->experts;
  fields.read("n_routed_experts", &e.count);
  fields.read("num_experts_per_tok", &e.per_token);
  fields.read("moe_intermediate_size", &e.width);
  fields.read("n_shared_experts", &e.shared);
  fields.read("n_group", &e.groups);
  fields.read("topk_group", &e.groups_kept);
  e.normalised = true;
  fields.read("norm_topk_prob", &e.normalised);
  fields.read("routed_scaling_factor", &e.scale);
  const Json* scoring = json_field(json, "scoring_func");
  e.sigmoid = scoring == nullptr || *scoring == "sigmoid";
  if (!e.sigmoid && *scoring != "softmax") return unknown("\"scoring_func\": " + json_line(*scoring));
  const Json* method = json_field(json, "topk_method");
  if (method != nullptr && *method != "noaux_tc") return unknown("\"topk_method\": " + json_line(*method));
  e.correction = true;  // zero where a model does without
  const std::int64_t first = read_or<std::int64_t>(fields, "first_k_dense_replace", 0),
                     every = read_or<std::int64_t>(fields, "moe_layer_freq", 1);
  for (std::int64_t layer = 0; layer < c->num_layers; ++layer)
    e.on_layer.push_back(e.count > 0 && layer >= first && every > 0 && layer % every == 0);
  return {};
}

Status read_qwen_experts(const Json& json, ConfigFields& fields, TargetConfig* c) {
  ExpertConfig& e = c->experts;
  fields.read("num_local_experts", &e.count);  // transformers 5
  fields.read("num_experts", &e.count);
  fields.read("num_experts_per_tok", &e.per_token);
  fields.read("moe_intermediate_size", &e.width);
  fields.read("norm_topk_prob", &e.normalised);
  const std::int64_t every = read_or<std::int64_t>(fields, "decoder_sparse_step", 1);
  for (std::int64_t layer = 0; layer < c->num_layers; ++layer)
    e.on_layer.push_back(e.count > 0 && every > 0 && (layer + 1) % every == 0);
  const Json* dense = json_field(json, "mlp_only_layers");
  if (dense == nullptr) return {};
  if (!dense->is_array()) return unknown("\"mlp_only_layers\" that is no list");
  for (const Json& layer : *dense) {
    if (!layer.is_number_integer()) return unknown("\"mlp_only_layers\" that is no list of layers");
    const auto at = layer.get<std::int64_t>();
    if (at >= 0 && at < c->num_layers) e.on_layer[static_cast<std::size_t>(at)] = false;
  }
  return {};
}

Status check_sizes(const TargetConfig& c) {
  const auto positive = [](std::initializer_list<std::int64_t> sizes) {
    return std::all_of(sizes.begin(), sizes.end(),
                       [](std::int64_t n) { return n > 0 && n < (std::int64_t{1} << 31); });
  };
  bool fits =
      positive({c.hidden, c.vocab, c.num_layers, c.num_heads, c.num_kv_heads, c.head_dim, c.intermediate}) &&
      c.num_layers < 10000 && c.num_heads % c.num_kv_heads == 0 && c.head_dim % 2 == 0 && c.rms_norm_eps > 0;
  const LatentConfig& l = c.latent;
  if (l.kv_rank != 0)
    fits = fits && positive({l.kv_rank, l.nope_dim, l.rope_dim, l.value_dim}) && l.q_rank >= 0 &&
           l.rope_dim % 2 == 0;
  const ExpertConfig& e = c.experts;
  if (e.count != 0)
    fits = fits && positive({e.count, e.per_token, e.width, e.groups, e.groups_kept}) &&
           e.per_token <= e.count && e.shared >= 0 && e.count % e.groups == 0 && e.groups_kept <= e.groups &&
           e.per_token <= e.count / e.groups * e.groups_kept;
  if (fits) return {};
  return Status(StatusCode::kConfig, "the sizes in the model's config.json cannot be", {},
                "fetch the model's config.json again");
}

}  // namespace

bool has_experts(const TargetConfig& c, std::int64_t layer) {
  return !c.experts.on_layer.empty() && c.experts.on_layer[static_cast<std::size_t>(layer)];
}

bool has_dense_layer(const TargetConfig& c) {
  const std::vector<bool>& experts = c.experts.on_layer;
  return experts.empty() || std::find(experts.begin(), experts.end(), false) != experts.end();
}

Result<TargetConfig> target_config_from_json(const Json& json) {
  if (!json.is_object()) return unknown("a config.json that is no object");
  const Json* quantised = json_field(json, "quantization_config");
  if (quantised == nullptr) quantised = json_field(json, "compression_config");
  if (const Json* text = json_field(json, "text_config"); text != nullptr) {
    EAGLET_ASSIGN_OR_RETURN(TargetConfig of_text, target_config_from_json(*text));
    if (quantised != nullptr) {  // some write it beside the text part, some in it
      EAGLET_ASSIGN_OR_RETURN(of_text.quantisation, weight_quantisation_from_json(quantised));
    }
    return of_text;
  }
  ConfigFields fields(json);
  TargetConfig c;
  EAGLET_ASSIGN_OR_RETURN(c.quantisation, weight_quantisation_from_json(quantised));
  fields.read("model_type", &c.model_type);
  EAGLET_RETURN_IF_ERROR(check_arithmetic(json, fields));
  read_sizes(fields, &c);
  if (c.num_layers < 1 || c.num_layers >= 10000) return check_sizes(c);
  EAGLET_ASSIGN_OR_RETURN(c.rope, rope_from_json(json));
  const std::string& type = c.model_type;
  if (type == "llama" || type == "mistral") {
    c.qkv_bias = c.o_bias = read_or(fields, "attention_bias", false);
    c.mlp_bias = read_or(fields, "mlp_bias", false);
  } else if (type == "qwen2") {
    c.qkv_bias = true;
  } else if (type == "qwen3" || type == "qwen3_moe") {
    c.qk_norm = true;
    c.qkv_bias = c.o_bias = read_or(fields, "attention_bias", false);
    if (type == "qwen3_moe") EAGLET_RETURN_IF_ERROR(read_qwen_experts(json, fields, &c));
  } else if (type == "deepseek_v3" || type == "kimi_k2") {
    if (read_or(fields, "attention_bias", false))
      return unknown("\"attention_bias\" beside latent attention");
    read_latent(fields, &c);
    if (c.latent.kv_rank < 1) return unknown("\"" + type + "\" without \"kv_lora_rank\"");
    EAGLET_RETURN_IF_ERROR(read_deepseek_experts(json, fields, &c));
  } else {
    return unknown("a model of type \"" + type + "\"");
  }
  EAGLET_RETURN_IF_ERROR(read_windows(json, fields, &c));
  EAGLET_RETURN_IF_ERROR(fields.status());
  EAGLET_RETURN_IF_ERROR(check_sizes(c));
  return c;
}

}  // namespace eaglet
