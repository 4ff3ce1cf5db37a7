#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "draft/draft_weights.h"
#include "formats/target_model.h"
#include "store/store.h"
#include "train/train.h"

namespace eaglet {

/// The draft for a target as the options ask for it: width, heads, RoPE and epsilon are the target's.
DraftConfig draft_config_for(const TrainOptions& options, const TargetFacts& target,
                             const StoreHeader& header, std::int64_t draft_vocab);

/// Reads a draft to go on from and holds it against target, store and options. Shape and arithmetic are the
/// draft's own; an option that was set and says otherwise is refused by name. Layers that its config does not
/// list are the store's. `notes` gets what was loaded and what was not, and why.
Result<DraftWeights> warm_start(const TrainOptions& options, const TargetFacts& target,
                                const TargetWeights& weights, const StoreHeader& header,
                                std::vector<std::string>* notes);

/// kInvalidArgument names the first thing in which a draft does not fit target or store.
Status check_fits(const DraftConfig& draft, const TargetFacts& target, const StoreHeader& header);

}  // namespace eaglet
