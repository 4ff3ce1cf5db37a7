#pragma once

#include <string>

#include "apps/command.h"
#include "apps/rank_settings.h"
#include "formats/json.h"
#include "train/train.h"

namespace eaglet::apps {

/// Trains on several ranks of this machine, each an `eaglet train` with these options; the report is rank
/// 0's, as train_json has it. `answer_path`: a file for it meanwhile. What the ranks say goes to stderr as
/// they say it. kInterrupted after a signal, which all ranks got; else the kind of failure that the exit code
/// of the ranks stands for, or errors of run_own_ranks.
Result<Json> train_on_ranks(const RankSettings& where, const TrainOptions& options,
                            const std::string& answer_path, const Context& context);

}  // namespace eaglet::apps
