#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "batch/loader.h"
#include "batch/store_rows.h"
#include "comm/comm.h"
#include "draft/draft_model.h"
#include "train/counted_rows.h"
#include "train/gradient_reducer.h"
#include "train/needed_work.h"
#include "train/optimizer.h"
#include "train/rank_exchange.h"
#include "train/schedule.h"
#include "train/step_metrics.h"
#include "train/train.h"
#include "train/train_data.h"
#include "train/trainer_state.h"

namespace eaglet {

/// What came of one update. Sums are over all ranks; seconds and work `here` are this rank's.
struct UpdateResult {
  RankFacts facts;
  StepMetrics metrics;
  double lr = 0, grad_norm = 0;
  std::int64_t batches = 0;             // of the update, over all ranks
  std::optional<OpTimes> device_times;  // of this rank's device, where they were measured
  double data_wait_seconds = 0, rank_wait_seconds = 0, needed_flops_here = 0;
  std::int64_t tokens_here = 0, batches_here = 0;
  /// Ok, or kNumeric: loss or gradients are not finite, `what` and `where` name tensors and documents of all
  /// ranks, and nothing was updated.
  Status numeric;
};

/// One update after the other: this rank's batches, forward and backward, sums over the ranks, clipping, the
/// optimiser. An update takes the next batches_per_update batches of the epoch, fewer at its end; batch i of
/// them is rank (i mod ranks)'s, and a rank may get none. With one batch an update nothing is counted
/// beforehand and nothing is exchanged.
class UpdateStep {
 public:
  UpdateStep(const TrainOptions& options, const TrainData& data, DraftModel& model, Optimizer& optimizer,
             const Schedule& schedule, Comm& comm);
  ~UpdateStep();
  UpdateStep(const UpdateStep&) = delete;
  UpdateStep& operator=(const UpdateStep&) = delete;
  /// Counts rows where needed and starts the loader at the state's place in the data.
  Status start(const TrainerState& state);
  /// The update that follows `state`; does not change it. `flags` are this rank's wishes. Errors: those of
  /// the data and of ranks that are gone.
  Result<UpdateResult> make(const TrainerState& state, const RankFacts& flags);

 private:
  struct Group {
    std::int64_t first = 0, size = 0;  // batch numbers in the epoch
  };
  Group group_after(const TrainerState& state) const;
  void count_group(std::int64_t epoch, const Group& group);
  Status run_batches(const TrainerState& state, const Group& group, UpdateResult* result);
  Status run_batch(const TrainerState& state, std::int64_t number, bool first, bool last,
                   UpdateResult* result);
  double data_wait() const;
  Result<std::unique_ptr<PackedBatch>> next_batch();
  StoreRows& rows_of_batch() { return store_rows_[turn_ % 2]; }
  void look_ahead(const TrainerState& state, std::int64_t number);
  Status reduce(UpdateResult* result);
  Status apply(const TrainerState& state, UpdateResult* result);
  Status tell_not_finite(UpdateResult* result);
  void take_times(const TrainerState& state, UpdateResult* result);

  const TrainOptions& options_;
  const TrainData& data_;
  DraftModel& model_;
  Optimizer& optimizer_;
  const Schedule schedule_;
  Comm& comm_;
  NeededWork needed_work_;
  CountedRows counted_rows_;
  std::int64_t epoch_of_order_ = -1;
  std::vector<std::vector<std::size_t>> order_;  // batches of that epoch
  std::unique_ptr<BatchLoader> loader_;
  StoreRows store_rows_[2];  // of this batch and of the next, in turn, where states are not in it as fp32
  std::uint64_t turn_ = 0;   // batches so far
  std::optional<Result<std::unique_ptr<PackedBatch>>> next_;  // taken from the loader already
  double hidden_seconds_ = 0;  // of waiting for the loader while a device was at work
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<std::size_t> documents_;  // of this rank's part of the update
  std::string not_finite_;              // what this rank saw
  bool times_ops_ = false;              // this update's ops are measured
  double last_timed_ = -INFINITY;       // when the last such update ended
};

}  // namespace eaglet
