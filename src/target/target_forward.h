#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/spill_memory.h"
#include "base/status.h"
#include "device/threads.h"
#include "target/layer_forward.h"
#include "target/target_config.h"
#include "target/target_tensors.h"

namespace eaglet {

/// What a target's files say, and its weights.
struct TargetFiles {
  TargetConfig config;
  TargetTensors tensors;
};
/// A transformers folder or a GGUF file. kNotFound, kDataLoss, kConfig (an architecture or a setting that is
/// not known).
Result<TargetFiles> open_target_files(const std::string& path);

/// The target's forward, layer by layer: all documents of a pass go through a layer while the weights of the
/// next are read (of experts, one by one, the next expert's). Not thread-safe.
class TargetForward {
 public:
  /// The errors of open_target_files().
  static Result<std::unique_ptr<TargetForward>> open(const std::string& path,
                                                     const ForwardOptions& options = {});
  const TargetConfig& config() const { return config_; }

  /// What is called with the states x [tokens, hidden] after `layers` layers: 0 (the embeddings) to
  /// `last_layer`.
  using OnStates = std::function<Status(std::int64_t layers, const float* x)>;
  /// Runs `documents` (each at least one token, ids below the vocabulary) through the first `last_layer`
  /// layers. A document's states depend on nothing but its tokens, to rounding. kInterrupted after a signal.
  Status run(const std::vector<const std::vector<std::int32_t>*>& documents, std::int64_t last_layer,
             const OnStates& on_states);
  /// logits [n, vocab] of states x [n, hidden] after the last layer.
  Status logits(std::int64_t n, const float* x, std::vector<float>* out);

  /// Bytes that a pass needs for each of its tokens, and beside that for chunks and one layer's weights.
  std::uint64_t bytes_per_token() const;
  std::uint64_t fixed_bytes(std::int64_t longest_document) const;
  /// Multiplications and additions of a token, its attention to those before it left out.
  double flops_per_token() const;
  const std::string& path() const { return tensors_.path(); }
  /// As TargetTensors has it; of a pass the first layer's reading, beside which nothing can be computed, left
  /// out.
  double waited_seconds() const { return tensors_.waited_seconds(); }
  const std::string& spill_directory() const { return options_.spill_directory; }

 private:
  TargetForward(TargetConfig config, TargetTensors tensors, const ForwardOptions& options)
      : config_(std::move(config)),
        tensors_(std::move(tensors)),
        options_(options),
        rope_(target_rope(config_)),
        products_(config_, options),
        kept_(static_cast<std::size_t>(config_.num_layers)),
        scratch_(static_cast<std::size_t>(num_threads())) {}
  Status embed(const std::vector<const std::vector<std::int32_t>*>& documents);
  std::future<Result<LayerTensors>> read_ahead(std::int64_t layer);
  /// A layer ready to run: packed, and its norms and biases.
  struct PackedLayer {
    LayerTensors tensors;
    LayerProducts* products = nullptr;
    std::unique_ptr<LayerProducts> own;  // of a layer that is kept
  };
  bool keeps(std::int64_t layer) const { return options_.keep_weights && !has_experts(config_, layer); }
  bool kept(std::int64_t layer) const { return kept_[static_cast<std::size_t>(layer)].own != nullptr; }
  Result<const PackedLayer*> pack(std::int64_t layer, std::future<Result<LayerTensors>>* read);
  Status run_layer(std::int64_t layer, const PackedLayer& packed);
  void run_chunk(std::int64_t layer, const PackedLayer& packed, const DocumentChunk& chunk,
                 LayerScratch* scratch);

  TargetConfig config_;
  TargetTensors tensors_;
  ForwardOptions options_;
  TargetRope rope_;
  LayerProducts products_;  // of the layer that is under way, unless it is kept
  PackedLayer under_way_;
  std::vector<PackedLayer> kept_;
  std::vector<float> kept_embeddings_;
  SpillMemory x_, normed_;  // of the pass, fp32 [tokens, hidden]
  std::int64_t tokens_ = 0;
  std::vector<DocumentChunk> chunks_;
  std::vector<LayerScratch> scratch_;  // of each thread
};

/// Documents of these lengths as chunks of at most `rows` rows, none of them divided: a longer one is a chunk
/// of its own.
std::vector<DocumentChunk> chunk_documents(const std::vector<std::int64_t>& lengths, std::int64_t rows);

}  // namespace eaglet
