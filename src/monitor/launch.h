#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet::monitor {

/// A trainer started so that it can be judged well: run id in the environment, its own session, unbuffered
/// output into a log with times, a pid file, and a record of how it ended.
struct LaunchOptions {
  std::vector<std::string> command;
  std::string run_id, directory;  // the directory gets log.txt, launch.json, launch.pid
  bool wait = false;              // stay until it ends, showing its output
};

struct LaunchResult {
  std::int64_t pid = -1;
  std::string log_path, record_path;
  bool ended = false;  // with `wait`
  int exit_code = 0;   // the program's, or 128 + signal
  std::string reason;  // "exit code 0", "killed by signal 9 (Killed)"
};

/// Starts the command under a supervisor of its own (which survives us), or supervises it here with `wait`.
/// kBusy when the directory already has a living run; kNotFound when the program is not there.
Result<LaunchResult> launch_run(const LaunchOptions& options);

}  // namespace eaglet::monitor
