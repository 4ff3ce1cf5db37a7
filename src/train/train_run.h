#pragma once

#include "base/progress.h"
#include "base/status.h"
#include "formats/target_model.h"
#include "train/train.h"
#include "train/train_plan.h"

namespace eaglet {

/// train() with the target in memory; the caller holds the output directory's lock and has checked the
/// options.
Result<TrainReport> train_on_target(const TrainOptions& options, const TargetFacts& target,
                                    const TargetWeights& weights, Progress& progress);

/// plan_training() with a measurement and the target in memory; needs no output directory.
Result<TrainPlan> measure_on_target(const TrainOptions& options, const TargetFacts& target,
                                    const TargetWeights& weights, std::int64_t steps, Progress& progress);

}  // namespace eaglet
