#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "target/target_config.h"

namespace eaglet {

/// Where a target's weights come from, by the names that transformers gives them. read() may be called by
/// several threads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The tensor as fp32; `shape` is what the configuration says it is.
  virtual Result<std::vector<float>> read(const std::string& name,
                                          const std::vector<std::int64_t>& shape) = 0;
};
/// A transformers folder. kNotFound, kDataLoss. `model.` may stand below `language_model.` (models for
/// pictures and text).
Result<std::unique_ptr<WeightSource>> open_folder_weights(const std::string& directory,
                                                          const WeightQuantisation& quantisation);
/// A GGUF file of an architecture that target_config_from_gguf() knows, every quantisation that ggml can take
/// back.
/// Rows that llama.cpp keeps in another order are put back.
Result<std::unique_ptr<WeightSource>> open_gguf_weights(const std::string& path, const TargetConfig& config);

/// The weights of a target. Files stay mapped; nothing is kept.
class TargetTensors {
 public:
  TargetTensors(std::unique_ptr<WeightSource> source, std::string path)
      : source_(std::move(source)), path_(std::move(path)) {}
  /// kNotFound (named), kConfig (another shape, or a dtype that cannot be read), kNumeric (a value that is
  /// not finite).
  Result<std::vector<float>> read(const std::string& name, const std::vector<std::int64_t>& shape);
  const std::string& path() const { return path_; }
  /// Seconds in which whoever computes had to wait for weights that were not read yet, since the start.
  double waited_seconds() const { return waited_seconds_; }
  void add_waited(double seconds) { waited_seconds_ += seconds; }

 private:
  std::unique_ptr<WeightSource> source_;
  std::string path_;
  double waited_seconds_ = 0;
};

struct MlpBiases {
  std::vector<float> gate, up, down;  // empty where the model has none
};

/// One layer's own weights; which are there follows from the configuration. Experts are not among them: they
/// are read one by one when their tokens are there (expert_layer.h).
struct LayerTensors {
  std::vector<float> input_norm, post_norm;
  std::vector<float> q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;  // grouped attention
  std::vector<float> q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b;                   // latent attention
  std::vector<float> gate, up, down;                                              // dense MLP
  MlpBiases mlp_biases;
  std::vector<float> router, correction, shared_gate, shared_up, shared_down;  // experts
};
Result<LayerTensors> read_layer(const TargetConfig& config, std::int64_t layer, TargetTensors& tensors);

struct ExpertTensors {
  std::vector<float> gate, up, down;
};
Result<ExpertTensors> read_expert(const TargetConfig& config, std::int64_t layer, std::int64_t expert,
                                  TargetTensors& tensors);

/// "model.layers.<layer>."
std::string layer_prefix(std::int64_t layer);

}  // namespace eaglet
