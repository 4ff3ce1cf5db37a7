#pragma once

#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "comm/comm.h"
#include "draft/draft_weights.h"
#include "train/resume.h"
#include "train/train.h"
#include "train/trainer_state.h"

namespace eaglet {

/// find_resume_point() as rank 0 sees it (after --start-over), on every rank: the others read the checkpoint
/// it names from the directory they share. kConfig when one cannot.
Result<ResumePoint> agree_on_checkpoint(Comm& comm, const TrainOptions& options, Progress& progress);

/// kConfig when a rank begins with other settings, another store or other weights than rank 0: they would
/// train apart without anybody noticing.
Status check_same_on_all_ranks(Comm& comm, const TrainerState& state, const DraftWeights& draft,
                               const std::string& output_dir);

/// The first rank whose weights are not the bits of rank 0's, or -1: updates are the same on every rank, so a
/// difference is a fault of a machine or of a library, and nothing trained after it can be trusted.
Result<int> rank_with_other_weights(Comm& comm, const DraftWeights& draft);

}  // namespace eaglet
