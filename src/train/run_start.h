#pragma once

#include <cstdint>

#include "base/progress.h"
#include "base/status.h"
#include "draft/draft_weights.h"
#include "formats/target_model.h"
#include "train/resume.h"
#include "train/train.h"
#include "train/train_data.h"
#include "train/trainer_state.h"

namespace eaglet {

/// What a run starts with, however it came about.
struct RunStart {
  DraftWeights draft;
  TrainerState state;
  bool has_settings = false;  // the state came from a checkpoint, with the settings of then
};

/// Makes it from what a run is given. All references must outlive it.
struct RunStartMaker {
  const TrainOptions& options;
  const TargetFacts& target;
  const TargetWeights& weights;
  const TrainData& data;
  Progress& progress;

  /// A new draft, or that of --from. kUsage and kInvalidArgument where options and target do not fit.
  Result<RunStart> anew() const;
  /// Where a checkpoint left off; without its trainer_state.json as far as its step tells.
  Result<RunStart> from_checkpoint(const FoundCheckpoint& checkpoint, std::int64_t batches_per_update) const;
};

}  // namespace eaglet
