#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/compute_type.h"
#include "device/linear_weight.h"
#include "target/target_config.h"
#include "target/target_tensors.h"

namespace eaglet {

struct ForwardOptions {
  ComputeType compute_type = ComputeType::kF32;  // what products of weights multiply in; sums are fp32
  /// Products always run on tiles of 64 rows, the last filled up with zeros: a row's result is then the same
  /// bits whatever stands beside it. Otherwise the last tile is as short as it may be.
  bool deterministic = true;
  /// Layers without experts stay packed in memory after the first pass, and so do the embeddings: for many
  /// short passes.
  bool keep_weights = false;
  std::string spill_directory = {};  // the rows of a pass lie in a file there; empty: in memory
};

/// The products of an MLP: down(silu(gate(z)) * up(z)). `gate_up` is both in one, a row's gate before its up;
/// then the two alone are not there.
struct MlpProducts {
  std::unique_ptr<LinearWeight> gate, up, down, gate_up;
  std::int64_t width = 0;
};

/// The matrix products of a layer, packed by oneDNN. Layers have the same shapes: where one goes by after the
/// other the programs are made once and each layer's weights are loaded into them. Threads of one parallel
/// region may multiply at once.
class LayerProducts {
 public:
  /// For any layer, one after the other.
  LayerProducts(const TargetConfig& config, const ForwardOptions& options);
  /// For this layer alone, with all its experts, to be kept: products of few rows (filled up to a multiple of
  /// kFewRows), each by all threads, those of one input in one: it is over too soon for threads to meet
  /// often. Layers share the workspace.
  LayerProducts(const TargetConfig& config, std::int64_t layer, ComputeType type,
                const std::shared_ptr<ProductWorkspace>& workspace);
  static constexpr std::int64_t kFewRows = 16;

  /// Packs a layer's matrices and takes their fp32 values out of `layer`; norms, biases and the correction
  /// stay.
  void load(LayerTensors* layer);
  void load_expert(ExpertTensors* expert) { load_expert(expert, expert_product()); }
  static void load_expert(ExpertTensors* expert, MlpProducts* products);
  /// What products need beside the weights, for all threads.
  std::uint64_t workspace_bytes() const { return workspace_->bytes(); }

  std::unique_ptr<LinearWeight> q, k, v, o;  // grouped attention; q, o of latent attention too
  std::unique_ptr<LinearWeight> qkv;         // the three in one, in this order; then they are not there
  std::unique_ptr<LinearWeight> q_a, q_b, kv_a, kv_b;  // latent attention
  MlpProducts mlp, shared;                             // what the model has
  std::vector<MlpProducts> experts;                    // one, into which each is loaded; or all of the layer
  std::unique_ptr<LinearWeight> router;                // always fp32 and in full tiles: it decides

 private:
  std::unique_ptr<LinearWeight> make(std::int64_t out, std::int64_t in) {
    return std::make_unique<LinearWeight>(out, in, in, options_, workspace_.get());
  }
  MlpProducts make_mlp(std::int64_t width);
  void make_attention(const TargetConfig& config);
  bool joined() const { return options_.row_step == kFewRows; }
  void make_experts(const TargetConfig& config, std::int64_t count);
  MlpProducts* expert_product() { return experts.data(); }
  LinearWeightOptions options_;
  std::int64_t hidden_;
  std::shared_ptr<ProductWorkspace> workspace_;
};

}  // namespace eaglet
