#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/command.h"
#include "monitor/thresholds.h"
#include "monitor/verdict.h"
#include "monitor/verdict_text.h"

namespace eaglet::apps {

/// Flags that all commands of the watch family share: where GPUs are read, thresholds, what counts as a
/// failure.
struct WatchOptions {
  std::string gpu_metrics, settings_file;
  std::vector<std::string> set;
  bool exit_zero = false, print_config = false;
  std::string fail_on = "warn";
};
/// Returns --gpu-metrics, which does not go with all that a command can do.
CLI::Option* add_watch_options(CLI::App& app, WatchOptions& options);

/// Flag, then EAGLET_WATCH_CONFIG, then the user's ~/.config/eaglet/watch.conf, then defaults.
/// `sources` (may be null) gets one line per threshold: name = value, and where it came from.
Result<monitor::Thresholds> read_watch_thresholds(const WatchOptions& options, std::string* sources);

/// The exit code after --exit-zero and --fail-on.
int watch_exit_code(int code, const WatchOptions& options);

monitor::Paint painter(bool color);

}  // namespace eaglet::apps
