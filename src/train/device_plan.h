#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draft/draft_model.h"
#include "train/device_facts.h"
#include "train/device_work.h"

namespace eaglet {

/// A training run on paper: the draft and the batches of one rank, packed full of documents of one length.
struct PlannedStep {
  DraftConfig config;
  std::int64_t target_vocab = 0;  // rows of the target's embedding table
  int ttt_steps = 3;
  bool train_head = true;
  std::int64_t max_seq_len = 8192, document_tokens = 2205;
  double supervised_share = 1;  // of each document, at its end
  /// Real batches in place of such documents, views; an update takes `accumulation` of them. Memory is then
  /// that of this eaglet's own CUDA step instead of the paper's.
  std::vector<DraftInputs> batches;
  double tokens_of_batch = 0;  // real ones, mean
  std::int64_t accumulation = 1;
  TttOptions options;  // of these batches: their chunks, sampling, what states come as
};

struct DeviceMemory {
  double parameters = 0;   // fp32 masters, moments, gradients, bf16 copies of what is trained
  double frozen = 0;       // the target's embeddings and head rows in bf16
  double activations = 0;  // of a batch in chunks, bf16
  double batches = 0;      // states read ahead, on the device
  double runtime = 0;      // context, workspace
  double total() const { return parameters + frozen + activations + batches + runtime; }
};

struct OpTime {
  DeviceOp op;
  double seconds = 0;
  bool bound_by_memory = false;  // else by arithmetic
};

struct DevicePlan {
  std::vector<OpTime> ops;
  double step_seconds = 0;     // of one rank, update and what of the reduction is not hidden included
  double compute_seconds = 0;  // ops alone
  double reduce_seconds = 0, reduce_exposed_seconds = 0;
  double data_seconds = 0;       // the batch's states from the host; beside the step, binds when it is longer
  double tokens_per_second = 0;  // all ranks
  double needed_flops = 0;       // of one rank's step
  double mfu_ratio = 0;          // needed work over time and gemm_flops
  double sheet_ratio = 0;        // the same over the data sheet
  std::string binds;             // arithmetic, memory, launches, gradients, data
  DeviceMemory memory;
  bool fits = false;
};

/// Trainable parameters, and all with the target's frozen tables.
struct ParameterCount {
  std::int64_t trainable = 0, total = 0;
};
ParameterCount count_parameters(const PlannedStep& step);

/// The update's time follows from the mean over the batches. A roofline by op: each takes the longer of its
/// arithmetic and its memory traffic, and its launches (docs/gpu-plan.md). A limit: what shapes and gaps
/// between kernels cost on top shows only on the device. Gradients are reduced in bf16 while backward runs:
/// what is longer than the backward half is exposed. kUsage: sizes that cannot be, NVLink on a device
/// without.
Result<DevicePlan> plan_device(const PlannedStep& step, const DeviceFacts& device, int ranks, Link link);

/// The longest max_seq_len that fills the device, a multiple of 64, at most a million; 0: none fits. `step`
/// is one that plan_device() takes. About a second.
std::int64_t longest_on_device(const PlannedStep& step, const DeviceFacts& device, int ranks);

}  // namespace eaglet
