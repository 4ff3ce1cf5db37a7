#pragma once

#include <CLI/CLI.hpp>

#include "apps/command.h"

namespace eaglet::apps {

/// `eaglet plan train`: the flags of `eaglet train`, and what such a run will do and need.
Run add_plan_train(CLI::App& app);

}  // namespace eaglet::apps
