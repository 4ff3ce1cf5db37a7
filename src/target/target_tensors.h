#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/safetensors_folder.h"
#include "target/target_config.h"

namespace eaglet {

/// The weights of a transformers folder by their names, as fp32. Files stay mapped; nothing is kept.
class TargetTensors {
 public:
  /// kNotFound, kDataLoss. `model.` and the layers may stand below `language_model.` (models for pictures and
  /// text).
  static Result<TargetTensors> open(const std::string& directory);
  bool has(const std::string& name) const { return folder_.has(prefix_ + name); }
  /// kNotFound (named), kConfig (another shape, or a dtype that is not fp32, bf16 or fp16), kNumeric (a value
  /// that is not finite).
  Result<std::vector<float>> read(const std::string& name, const std::vector<std::int64_t>& shape);
  const std::string& directory() const { return folder_.directory(); }

 private:
  explicit TargetTensors(SafetensorsFolder folder) : folder_(std::move(folder)) {}
  SafetensorsFolder folder_;
  std::string prefix_;
};

/// One layer's own weights; which are there follows from the configuration. Experts are not among them: they
/// are read one by one when their tokens are there (expert_layer.h).
struct LayerTensors {
  std::vector<float> input_norm, post_norm;
  std::vector<float> q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;  // grouped attention
  std::vector<float> q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b;                   // latent attention
  std::vector<float> gate, up, down, gate_bias, up_bias, down_bias;               // dense MLP
  std::vector<float> router, correction, shared_gate, shared_up, shared_down;     // experts
};
Result<LayerTensors> read_layer(const TargetConfig& config, std::int64_t layer, TargetTensors& tensors);

/// "model.layers.<layer>."
std::string layer_prefix(std::int64_t layer);

}  // namespace eaglet
