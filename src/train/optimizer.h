#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/comm.h"
#include "device/placed_array.h"
#include "draft/draft_weights.h"
#include "ops/adamw.h"
#include "ops/muon.h"

namespace eaglet {

struct OptimizerOptions {
  bool use_muon = false;
  AdamwOptions adamw;
  MuonOptions muon;
  double muon_lr_ratio = 1;  // Muon's learning rate over AdamW's, at every step
};

/// Does this tensor learn by Muon? The usual split: hidden matrices do; norms and biases, embeddings and the
/// head, whose rows are tokens, and matrices of one row or column keep AdamW.
bool learns_by_muon(const ParameterInfo& parameter);

/// The update rule and its memory, over all trainable tensors of a table. With several shards (ZeRO-1) every
/// rank keeps the moments of its pieces only and updates these; share_weights() then hands the weights round.
/// Same inputs and thread count: same bits, whatever the shards.
class Optimizer {
 public:
  /// Without memory it only tells its bytes(); with memory the host's.
  Optimizer(const OptimizerOptions& options, std::vector<ParameterInfo> table, int shard = 0, int shards = 1,
            bool with_memory = true);

  /// Moments, all zero, and scratch in the device's memory from now on. kNoSpace when it has no more.
  Status place_on(Accelerator& device);

  /// One update in place: weights and gradients are whole blocks in table order, gradients times
  /// `gradient_scale`. They lie where the moments lie.
  void update(float* weights, const float* gradients, double gradient_scale, double learning_rate);
  /// After update(): every rank gets the pieces it did not update itself. Nothing to do with one shard.
  Status share_weights(Comm& comm, float* weights) const;

  std::int64_t updates() const { return updates_; }
  /// Bytes of the moments and scratch this rank keeps, and those all ranks keep together (without scratch).
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t state_bytes() const { return 4 * state_elements_; }

  /// optimizer.safetensors (docs/formats/checkpoint.md): exp_avg.<name> and exp_avg_sq.<name>, or
  /// momentum_buffer.<name> under Muon; `updates` and `optimizer` in the metadata. With several shards all
  /// ranks call it and rank 0 writes; the file is the same for any number of shards.
  Status write(const std::string& path, Comm& comm) const;
  /// kDataLoss when a tensor is missing or has another shape, kConfig when another optimizer wrote it.
  Status read(const std::string& path);

 private:
  // A tensor, or a part of one under AdamW: what one shard owns.
  struct Piece {
    std::size_t tensor = 0;
    std::int64_t begin = 0, elements = 0;  // in the tensor
    bool muon = false;
    int owner = 0;
    std::int64_t first_at = -1, second_at = -1;  // in moments_, when it is ours
  };
  struct StateTensor {
    std::string name;
    std::size_t tensor = 0;
    bool second = false;
  };
  void plan_pieces(int shards);
  std::vector<StateTensor> state_tensors() const;
  std::int64_t place(const Piece& piece, bool second) const {
    return second ? piece.second_at : piece.first_at;
  }
  const float* moments_on_host(const Piece& piece, bool second, std::vector<float>* buffer) const;
  Status send_pieces(Comm& comm) const;
  Result<const float*> gather(const StateTensor& state, Comm& comm, std::vector<float>* buffer) const;

  const OptimizerOptions options_;
  const std::vector<ParameterInfo> table_;
  const int shard_;
  std::vector<Piece> pieces_;
  std::int64_t moment_floats_ = 0, scratch_floats_ = 0;
  PlacedArray<float> moments_, scratch_;
  std::uint64_t state_elements_ = 0, bytes_ = 0;
  std::int64_t updates_ = 0;
};

}  // namespace eaglet
