#pragma once

#include <CLI/CLI.hpp>

#include "train/train.h"

namespace eaglet::apps {

/// The flags of `eaglet train`, also of what plans a training run.
void add_train_flags(CLI::App& app, TrainOptions& options);

}  // namespace eaglet::apps
