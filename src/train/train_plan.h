#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "batch/loader.h"
#include "comm/comm.h"
#include "draft/draft_model.h"
#include "formats/target_model.h"
#include "train/schedule.h"
#include "train/train.h"
#include "train/train_data.h"

namespace eaglet {

/// What one rank of a run will hold in memory, in bytes; told without making any of it.
struct MemoryPlan {
  std::uint64_t weights = 0, gradients = 0, optimizer = 0;
  std::uint64_t packed = 0;       // copies of weights and of the teacher's head rows, made ready for products
  std::uint64_t activations = 0;  // of the batch that needs most
  std::uint64_t target = 0;       // embeddings, head and norm of the target
  std::uint64_t batches = 0;      // read ahead, in training and while validating
  std::uint64_t program = 0;      // what this process takes without a run: code, libraries
  std::uint64_t total() const {
    return weights + gradients + optimizer + packed + activations + target + batches + program;
  }
};

/// What a run will do and need, exactly where it can be known: batches, steps, arithmetic.
struct TrainPlan {
  PackingReport packing;
  std::int64_t held_out_documents = 0;
  std::vector<std::int32_t> aux_layers;
  std::int64_t batches_per_update = 1, updates_per_epoch = 0, total_steps = 0;
  std::int64_t trainable_params = 0, total_params = 0;
  double needed_flops_epoch = 0, needed_flops_run = 0;  // over all ranks
  double run_tokens = 0;                                // real tokens of all updates
  MemoryPlan memory;
  std::uint64_t state_bytes = 0;       // the store: its pages are read through the system's cache
  std::uint64_t checkpoint_bytes = 0;  // of one
  /// After a measurement, else 0.
  double seconds = 0, seconds_per_step = 0, measured_flops_per_second = 0;
  std::int64_t measured_steps = 0;
};

/// Updates an epoch and of the whole run, and the schedule over them.
struct StepCounts {
  std::int64_t batches_per_update = 1, updates_per_epoch = 0, total_steps = 0;
  Schedule schedule;
};
/// kUsage when the schedule would end before the run.
Result<StepCounts> count_steps(const TrainOptions& options, std::int64_t batches_per_epoch);

/// From facts, tokens and masks alone. `threads` of one rank; `program_bytes`: what the process takes without
/// a run. Cost: about a millisecond a batch.
Result<TrainPlan> make_train_plan(const TrainOptions& options, const TrainData& data,
                                  const TargetFacts& target, const DraftConfig& config, const TttOptions& ttt,
                                  int threads, std::uint64_t program_bytes);

/// Puts the time into a plan: `steps` updates with this work took `seconds`. Validations, which cost a third
/// of a training step's work, and checkpoints at 200 MB/s are added.
void add_measurement(std::int64_t steps, double flops, double seconds, const TrainData& data,
                     const TrainOptions& options, TrainPlan* plan);

/// The draft's configuration as train() will choose it: of --from, or by options and target.
Result<DraftConfig> planned_config(const TrainOptions& options, const TargetFacts& target,
                                   const StoreHeader& header);

/// What steps will multiply in: as asked, or measured now.
Result<ComputeType> planned_compute_type(const TrainOptions& options);

/// The longest --max-seq-len (a multiple of 64, at most `longest`) whose memory fits into `bytes` when every
/// row is supervised; 0 when not even 64 does.
std::int64_t longest_that_fits(const TrainOptions& options, const DraftConfig& config, const TttOptions& ttt,
                               const MemoryPlan& plan, int threads, std::uint64_t bytes,
                               std::int64_t longest);

/// Lines for people: documents, batches, draft, memory, steps, work.
std::vector<std::string> plan_lines(const TrainPlan& plan, const TrainOptions& options,
                                    const Schedule& schedule, int ranks, int threads);

/// The whole of `eaglet plan train`: opens the data, plans, and with measure_steps > 0 makes so many updates
/// in memory (nothing is written) for the time.
Result<TrainPlan> plan_training(const TrainOptions& options, std::int64_t measure_steps, Progress& progress);

/// Resident bytes of this process now.
std::uint64_t resident_bytes();

}  // namespace eaglet
