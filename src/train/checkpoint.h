#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "draft/draft_weights.h"
#include "train/checkpoint_folder.h"
#include "train/optimizer.h"
#include "train/trainer_state.h"

namespace eaglet {

/// Bytes a checkpoint of this draft takes on disk, a little rounded up.
std::uint64_t checkpoint_bytes(const DraftWeights& draft, std::uint64_t optimizer_state_bytes);

/// Saves everything that is needed to go on; rank 0 calls it (the others: Optimizer::write, when the moments
/// are sharded). The free space is compared with the need first. kNoSpace and
/// every other failure leave the earlier checkpoints untouched and say which one is the last.
Status save_checkpoint(const std::string& checkpoints, const TrainerState& state, const DraftWeights& draft,
                       const Optimizer& optimizer, Comm& comm,
                       const std::function<void(const std::string&)>& note);

/// Points checkpoints/<link> ("latest", "best") at the checkpoint of `step`.
Status link_checkpoint(const std::string& checkpoints, const std::string& link, std::int64_t step);

/// Removes the oldest checkpoints so that `keep` are left, besides that of `best_step`. keep 0 keeps all.
/// Only whole folders named step-<n> are ever removed, never a broken one or one that was set aside.
Status prune_checkpoints(const std::string& checkpoints, std::int64_t keep, std::int64_t best_step);

}  // namespace eaglet
