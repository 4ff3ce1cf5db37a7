#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/linear_weight.h"
#include "target/kv_cache.h"
#include "target/layer_forward.h"
#include "target/target_config.h"

namespace eaglet {

/// The next tokens of a sequence: its whole prompt (the cache is empty), or what follows what is cached.
struct NextTokens {
  SequenceCache* cache = nullptr;
  std::vector<std::int32_t> ids;  // at least one, below the vocabulary
  std::int64_t outputs = 1;       // so many of the last of them want logits after them; at most all
};

/// A target with all its weights in memory, ready to multiply, for generating token by token. Not
/// thread-safe.
class ResidentTarget {
 public:
  /// Called after each layer with how many are loaded, of how many; a failure ends the loading.
  using OnLayer = std::function<Status(std::int64_t done, std::int64_t of)>;
  /// A transformers folder or a GGUF file. The errors of TargetForward::open; kInterrupted.
  static Result<std::unique_ptr<ResidentTarget>> load(const std::string& path, ComputeType type,
                                                      const OnLayer& on_layer);
  /// Memory of the weights, and of a step of `rows` rows that ask for `outputs` logits.
  static std::uint64_t weight_bytes(const TargetConfig& config, ComputeType type);
  static std::uint64_t step_bytes(const TargetConfig& config, std::int64_t rows, std::int64_t outputs);
  const TargetConfig& config() const { return config_; }
  ComputeType compute_type() const { return type_; }
  const std::vector<float>& embeddings() const { return embeddings_; }  // [vocab, hidden]
  SequenceCache make_cache(std::int64_t rows) const {
    return SequenceCache(config_, type_ == ComputeType::kBf16, rows);
  }

  /// Called with the states [rows, hidden] of the new tokens of sequences first, first + 1 ... (`count` of
  /// them, one after the other) after `layers` layers: 0 (the embeddings) to all. Several threads may call at
  /// once, each for sequences of its own.
  using OnStates =
      std::function<void(std::size_t first, std::size_t count, std::int64_t layers, const float* x)>;
  /// Takes the tokens of all sequences through all layers, and their caches on. A sequence's result hangs on
  /// its tokens alone, up to rounding: sums of a product may round differently with other numbers of rows.
  Status step(const std::vector<NextTokens>& sequences, const OnStates& on_states = nullptr);
  /// [vocab] of the i-th token of the last step that wanted them, in the order of sequences and their tokens.
  /// May be overwritten.
  float* logits(std::int64_t i) { return logits_.data() + i * config_.vocab; }

 private:
  struct Layer {
    LayerTensors tensors;  // norms, biases, the router's correction
    std::unique_ptr<LayerProducts> products;
  };
  ResidentTarget(TargetConfig config, ComputeType type);
  /// Sequences that go through the layers together, on one thread or on all.
  struct Group {
    std::size_t first = 0, count = 0;      // of the step's sequences
    std::int64_t first_row = 0, rows = 0;  // of x_; without those that fill up
    DocumentChunk chunk;
    StepCaches caches;
  };
  Status check(const std::vector<NextTokens>& sequences) const;
  void make_groups(const std::vector<NextTokens>& sequences);
  void embed(const std::vector<NextTokens>& sequences);
  void run_group(Group* group, LayerScratch* scratch, const OnStates& on_states);
  void compute_logits(const std::vector<NextTokens>& sequences);

  TargetConfig config_;
  ComputeType type_;
  TargetRope rope_;
  std::shared_ptr<ProductWorkspace> workspace_;
  std::vector<Layer> layers_;
  std::vector<float> embeddings_, final_norm_;
  std::unique_ptr<LinearWeight> head_;
  std::vector<Group> groups_;
  std::vector<float> x_, normed_, last_, logits_;
  std::vector<LayerScratch> scratch_;  // of each thread
};

}  // namespace eaglet
