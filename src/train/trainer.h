#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "comm/comm.h"
#include "draft/draft_model.h"
#include "train/optimizer.h"
#include "train/rank_exchange.h"
#include "train/run_records.h"
#include "train/schedule.h"
#include "train/step_metrics.h"
#include "train/train.h"
#include "train/train_data.h"
#include "train/trainer_state.h"
#include "train/update_step.h"

namespace eaglet {

/// The loop: updates, validation, checkpoints, and what ends it. Everything it needs was prepared and checked
/// before; everything that fixes its numbers is in the state, the optimiser, the weights and the schedule.
/// With several ranks each has its own Trainer, all decide alike, and rank 0 writes. Not thread-safe.
class Trainer {
 public:
  Trainer(const TrainOptions& options, const TrainData& data, DraftModel& model, Optimizer& optimizer,
          const Schedule& schedule, std::int64_t total_steps, TrainerState state, RunRecords& records,
          Comm& comm, Progress& progress);

  /// Trains until total_steps, or until --max-time or --early-stop-patience ends it (ok; saved, and said).
  /// kInterrupted after a signal (saved), kNumeric when a loss or gradient is not finite and must not be
  /// skipped (names step, documents and tensors; nothing is saved), kUnavailable when a rank is gone,
  /// kNoSpace and others from saving.
  Status run();

  const TrainerState& state() const { return state_; }
  double seconds() const { return seconds_; }
  std::int64_t tokens() const { return tokens_; }
  /// Arithmetic of the updates of this run, over all ranks.
  double needed_flops() const { return needed_flops_; }
  /// Share of the run's time that this rank waited for others.
  double rank_wait_share() const { return seconds_ > 0 ? rank_wait_seconds_ / seconds_ : 0; }

 private:
  Status one_step(UpdateStep& update);
  Status skip_or_stop(const Status& numeric);
  double peak_flops() const;
  double share_of_peak(double flops_per_second);
  Status log_step(LogRecord record);
  RankFacts wishes() const;
  Status look_around();
  Status after_step();
  Status validate_and_save();
  /// Metrics over the held-out documents; sets state_.last_validation and says whether it is the best so far.
  Status validate(bool* best);
  Result<RankFacts> held_out_facts();
  Status save(bool best);
  Status stop_for_signal();
  Status end_early(const std::string& why);
  bool is_due(std::int64_t every_steps) const;
  std::string last_good() const;
  bool signalled() const { return facts_.sigint + facts_.sigterm > 0; }
  Status judge_loss(double loss);
  void forecast();
  bool leads() const { return comm_.rank() == 0; }

  const TrainOptions& options_;
  const TrainData& data_;
  DraftModel& model_;
  Optimizer& optimizer_;
  const Schedule schedule_;
  const std::int64_t total_steps_;
  TrainerState state_;
  RunRecords& records_;
  Comm& comm_;
  Progress& progress_;
  const std::string checkpoints_;
  const double begin_seconds_, max_seconds_;
  RankFacts facts_;  // of the last update: what the ranks wish
  double peak_flops_ = 0, needed_flops_ = 0;
  std::int64_t first_step_ = 0, saved_step_ = -1, tokens_ = 0, skipped_in_a_row_ = 0;
  double seconds_ = 0, step_seconds_ = 0, rank_wait_seconds_ = 0;
  bool ended_ = false;
};

}  // namespace eaglet
