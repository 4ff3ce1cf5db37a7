#pragma once

#include <string>
#include <vector>

#include "draft/draft_model.h"
#include "draft/row_plan.h"

namespace eaglet {

/// What limits an op on an accelerator: matrix products, attention (tensor cores, at a lower rate), or
/// memory.
enum class OpKind { kGemm, kAttention, kMemory };

/// One kind of op of a training step, all its calls together.
struct DeviceOp {
  std::string name;
  OpKind kind = OpKind::kMemory;
  double flops = 0;         // done
  double needed_flops = 0;  // of these, what NeededWork counts: recomputation left out
  double bytes = 0;         // to and from the device's memory
  double launches = 0;      // kernels
};

/// The ops of one training step over these rows (no state is looked at), as docs/gpu-plan.md lays them out:
/// bf16 operands, fp32 sums, fp32 master weights and moments, skipped rows left out, teacher once a row,
/// logits in chunks that go through memory once each way. The last two ops are the update's: gradient norm
/// and AdamW.
std::vector<DeviceOp> device_step(const DraftConfig& config, int ttt_steps, bool train_head,
                                  const DraftInputs& rows, const RowSampling& sampling = {});

}  // namespace eaglet
