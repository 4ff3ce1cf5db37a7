#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "batch/loader.h"
#include "draft/draft_model.h"
#include "train/needed_work.h"
#include "train/optimizer_state.h"
#include "train/run_records.h"
#include "train/schedule.h"
#include "train/step_metrics.h"
#include "train/train.h"
#include "train/train_data.h"
#include "train/trainer_state.h"

namespace eaglet {

/// The loop: batches in, steps, validation, checkpoints. Everything it needs was prepared and checked before;
/// everything that fixes its numbers is in the state, the optimiser, the weights and the schedule. Not
/// thread-safe.
class Trainer {
 public:
  Trainer(const TrainOptions& options, const TrainData& data, DraftModel& model, const Schedule& schedule,
          std::int64_t total_steps, OptimizerState optimizer, TrainerState state, RunRecords& records,
          Progress& progress);

  /// Trains until total_steps. kInterrupted after a signal (saved), kNumeric when a loss or gradient is not
  /// finite (names step and documents; nothing is saved), kNoSpace and others from saving.
  Status run();

  const TrainerState& state() const { return state_; }
  double seconds() const { return seconds_; }
  std::int64_t tokens() const { return tokens_; }

 private:
  Status one_step(BatchLoader& loader);
  Status update_weights(const StepSums& sums, const PackedBatch& batch, LogRecord* record);
  void advance();
  double share_of_peak(double flops_per_second);
  Status log_step(LogRecord record);
  Status after_step();
  /// Metrics over the held-out documents; sets state_.last_validation and says whether it is the best so far.
  Status validate(bool* best);
  Result<StepSums> held_out_sums();
  Status save(bool best);
  Status stop_for_signal();
  Status not_finite(const Status& status, const PackedBatch& batch);
  bool due(std::int64_t every_steps) const;
  Status judge_first_loss(double loss);
  void forecast();

  const TrainOptions& options_;
  const TrainData& data_;
  DraftModel& model_;
  const Schedule schedule_;
  const std::int64_t total_steps_;
  OptimizerState optimizer_;
  TrainerState state_;
  RunRecords& records_;
  Progress& progress_;
  const std::string checkpoints_;
  NeededWork needed_work_;
  double peak_flops_ = 0;
  std::int64_t first_step_ = 0, saved_step_ = -1, tokens_ = 0;
  double seconds_ = 0, step_seconds_ = 0;
};

}  // namespace eaglet
