#pragma once

#include <vector>

#include "apps/setting.h"
#include "train/train.h"

namespace eaglet::apps {

/// What can be set of a training run, as flags of `eaglet train` and as keys of a recipe's [train]. The
/// targets point into `options`.
std::vector<Setting> train_setting_table(TrainOptions& options);

}  // namespace eaglet::apps
