#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "formats/rope_config.h"

namespace eaglet {

/// Everything that fixes a draft's shape and arithmetic. Dimension letters: H hidden, Ht target_hidden, A
/// num_aux, N num_heads, Kv num_kv_heads, D head_dim, F intermediate, V vocab, Vd draft_vocab.
struct DraftConfig {
  std::int64_t hidden = 0, target_hidden = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, intermediate = 0, num_layers = 1;
  std::int64_t vocab = 0, draft_vocab = 0;
  std::vector<std::int32_t> aux_layers;  // vLLM numbering, last-state id excluded
  std::int64_t num_aux() const { return static_cast<std::int64_t>(aux_layers.size()); }
  double rms_norm_eps = 1e-5;
  RopeConfig rope;
  std::int64_t max_position_embeddings = 0;
  bool norm_before_residual = false, norm_before_fc = false, fc_norm = false, norm_output = false;
  bool qk_norm = false;                      // q_norm / k_norm per head (qwen3 style)
  bool attention_bias = false;               // on q, k, v and o
  bool mlp_bias = false;                     // on gate, up and down
  std::vector<std::int64_t> sliding_window;  // per layer, 0 = full attention
  std::string hidden_act = "silu";
  std::int32_t bos_id = -1, eos_id = -1;
  std::string verifier_name, verifier_architecture;  // speculators_config.verifier
  std::string target_identity;                       // TargetFacts::identity; empty for foreign drafts
  std::int64_t ttt_steps = 3;  // what it was trained with (speculative_tokens in the export)
  bool operator==(const DraftConfig&) const = default;
};

/// kConfig / kInvalidArgument with the first thing that cannot be (odd head_dim, heads not divisible, ...).
Status check_draft_config(const DraftConfig& config);
/// The speculators 0.9.0 config.json (docs/formats/draft-checkpoint.md), plus our own "eaglet" object.
Json draft_config_to_json(const DraftConfig& config);
/// From a speculators config.json or a flat SpecForge / EAGLE config (docs/formats/draft-checkpoint.md).
/// Unknown settings that would change the arithmetic are refused with their name (kConfig). Layer numbers:
/// the top-level list is vLLM's (inputs of layers), the one in eagle_config counts outputs and becomes one
/// more. A config that names no layers comes back with aux_layers empty and otherwise unchecked: the caller
/// must name them.
Result<DraftConfig> draft_config_from_json(const Json& json);

}  // namespace eaglet
