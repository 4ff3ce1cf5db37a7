#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "train/checkpoint_folder.h"
#include "train/train.h"

namespace eaglet {

/// Where a run goes on.
struct ResumePoint {
  std::optional<FoundCheckpoint> checkpoint;  // none: from step 0
  std::vector<std::string> newer;             // whole or not, left behind by --resume-from
};

/// Decides by the rules of docs/training.md ("Resuming"): the newest usable checkpoint by number, or the one
/// named; says what is passed over and why. Errors: kConfig when checkpoints are there and --no-resume was
/// given, or when none of them is usable, or when optimiser or trainer state is absent without
/// --allow-missing-optimizer; kDataLoss when the one named is broken. Changes nothing.
Result<ResumePoint> find_resume_point(const TrainOptions& options, Progress& progress);

/// --start-over: moves checkpoints, records and config of the earlier run to <output_dir>/previous-<n>/.
Status set_run_aside(const std::string& output_dir, Progress& progress);

/// Renames the checkpoints that --resume-from leaves behind, so that they are not taken for newer ones later.
Status set_newer_aside(const std::string& output_dir, const ResumePoint& point, Progress& progress);

}  // namespace eaglet
