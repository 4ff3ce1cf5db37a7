#pragma once

#include "batch/packed_batch.h"
#include "draft/draft_model.h"
#include "draft/row_plan.h"

namespace eaglet {

/// Floating-point operations (a multiply-add is 2) that one training step on a batch needs: the matrix
/// products and attention of the rows that are really computed (docs/math/row_skipping.md), forward, gradient
/// of inputs and of weights. Skipped rows, recomputation, norms, rotary and softmax are not counted, so a
/// share of the machine's peak made from it cannot be raised by wasted work.
class NeededWork {
 public:
  NeededWork(const DraftConfig& config, int ttt_steps, bool train_head)
      : config_(config), ttt_steps_(ttt_steps), train_head_(train_head) {}
  double flops(const PackedBatch& batch);
  /// Of the rows of a batch (no state is looked at), a share of them drawn as training draws it.
  double flops(const DraftInputs& rows, double row_sampling, std::uint64_t sampling_seed);

 private:
  double layer_flops(const ChunkPlan& plan) const;
  const DraftConfig config_;
  const int ttt_steps_;
  const bool train_head_;
  RowPlan rows_;  // kept between batches for their memory
  ChunkPlan plan_;
};

/// The best rate of a 1024 x 1024 x 1024 product on this machine now, in operations per second: what
/// mfu_ratio is a share of. Takes about a tenth of a second.
double measured_peak_flops();

}  // namespace eaglet
