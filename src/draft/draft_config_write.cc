#include <algorithm>

#include "draft/draft_config.h"

namespace eaglet {
namespace {

// Both spellings of the rotary settings: transformers 5 reads rope_parameters, everything older rope_theta
// and rope_scaling. They say the same, so no reader has to choose.
void put_rope(const DraftConfig& c, Json* layer) {
  const Json rope = rope_to_json(c.rope);
  (*layer)["rope_parameters"] = rope;
  (*layer)["rope_theta"] = c.rope.theta;
  if (c.rope.type != "default") (*layer)["rope_scaling"] = rope;
}

void put_windows(const DraftConfig& c, Json* layer) {
  Json types = Json::array();
  std::int64_t window = 0;
  for (std::int64_t i = 0; i < c.num_layers; ++i) {
    const std::int64_t own = c.sliding_window.empty() ? 0 : c.sliding_window[static_cast<std::size_t>(i)];
    types.push_back(own > 0 ? "sliding_attention" : "full_attention");
    window = std::max(window, own);
  }
  (*layer)["layer_types"] = types;
  (*layer)["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
  (*layer)["use_sliding_window"] = window > 0;
}

Json layer_config(const DraftConfig& c) {
  Json layer;
  layer["model_type"] = c.qk_norm ? "qwen3" : "llama";
  layer["hidden_size"] = c.hidden;
  layer["intermediate_size"] = c.intermediate;
  layer["num_attention_heads"] = c.num_heads;
  layer["num_key_value_heads"] = c.num_kv_heads;
  layer["head_dim"] = c.head_dim;
  layer["num_hidden_layers"] = c.num_layers;
  layer["hidden_act"] = c.hidden_act;
  layer["rms_norm_eps"] = c.rms_norm_eps;
  layer["max_position_embeddings"] = c.max_position_embeddings;
  layer["vocab_size"] = c.vocab;
  put_rope(c, &layer);
  put_windows(c, &layer);
  layer["attention_bias"] = c.attention_bias;
  layer["mlp_bias"] = c.mlp_bias;
  layer["tie_word_embeddings"] = false;
  layer["bos_token_id"] = c.bos_id >= 0 ? Json(c.bos_id) : Json(nullptr);
  layer["eos_token_id"] = c.eos_id >= 0 ? Json(c.eos_id) : Json(nullptr);
  layer["pad_token_id"] = nullptr;
  return layer;
}

Json speculators_config(const DraftConfig& c) {
  Json proposal;
  proposal["proposal_type"] = "greedy";
  proposal["speculative_tokens"] = c.ttt_steps;
  proposal["verifier_accept_k"] = 1;
  proposal["accept_tolerance"] = 0.0;
  Json verifier;
  verifier["name_or_path"] = c.verifier_name.empty() ? Json(nullptr) : Json(c.verifier_name);
  verifier["architectures"] =
      c.verifier_architecture.empty() ? Json::array() : Json::array({c.verifier_architecture});
  Json json;
  json["algorithm"] = "eagle3";
  json["default_proposal_method"] = "greedy";
  json["proposal_methods"] = Json::array({proposal});
  json["verifier"] = verifier;
  return json;
}

}  // namespace

Json draft_config_to_json(const DraftConfig& c) {
  Json json;
  json["architectures"] = {"Eagle3DraftModel"};
  json["speculators_model_type"] = "eagle3";
  json["speculators_version"] = "0.9.0";
  json["draft_vocab_size"] = c.draft_vocab;
  json["dtype"] = "float32";
  json["eagle_aux_hidden_state_layer_ids"] = c.aux_layers;
  json["norm_before_residual"] = c.norm_before_residual;
  json["norm_before_fc"] = c.norm_before_fc;
  json["fc_norm"] = c.fc_norm;
  json["norm_output"] = c.norm_output;
  json["embed_requires_grad"] = false;
  json["target_hidden_size"] = c.target_hidden != c.hidden ? Json(c.target_hidden) : Json(nullptr);
  json["tie_word_embeddings"] = false;
  json["speculators_config"] = speculators_config(c);
  json["transformer_layer_config"] = layer_config(c);
  json["eaglet"] = {{"target_identity", c.target_identity}};
  return json;
}

}  // namespace eaglet
