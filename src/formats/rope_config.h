#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// Rotary settings of a model. `type` is "default", "linear", "llama3" or "yarn"; anything else is refused.
struct RopeConfig {
  std::string type = "default";
  double theta = 10000.0;
  double factor = 1.0;
  double original_max_position_embeddings = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;         // llama3
  double beta_fast = 32.0, beta_slow = 1.0;                     // yarn
  double mscale = 0, mscale_all_dim = 0, attention_factor = 0;  // yarn; 0 = not given
  bool truncate = true;                                         // yarn: round the correction range
  bool operator==(const RopeConfig&) const = default;
};

/// Angles per position: inv_freq [head_dim / 2] and the factor on cos and sin (1 except for yarn).
/// Source: docs/math/rope.md; pinned by golden `out.rope_inv_freq`.
struct RopeTable {
  std::vector<float> inv_freq;
  float attention_scaling = 1.0f;
};
RopeTable rope_table(const RopeConfig& rope, std::int64_t head_dim, std::int64_t max_position_embeddings);

/// Reads rope settings from a transformers-style config object, in any of its spellings (rope_parameters,
/// rope_scaling, rope_theta beside either; "type" or "rope_type"). kConfig names an unknown type or a
/// contradiction.
Result<RopeConfig> rope_from_json(const Json& config);
/// {"rope_type": ..., "rope_theta": ..., ...} as transformers 5 writes rope_parameters.
Json rope_to_json(const RopeConfig& rope);

}  // namespace eaglet
