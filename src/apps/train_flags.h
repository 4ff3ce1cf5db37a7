#pragma once

#include <CLI/CLI.hpp>

#include "extract/extract.h"
#include "train/train.h"

namespace eaglet::apps {

/// The flags of `eaglet train`, also of what plans a training run.
void add_train_flags(CLI::App& app, TrainOptions& options);

/// How the target makes states for --online.
ExtractOptions online_options(const TrainOptions& options);

}  // namespace eaglet::apps
