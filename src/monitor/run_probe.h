#pragma once

#include <string>

#include "base/status.h"

namespace eaglet::monitor {

/// The three questions of an exec probe, answered from the run's own status file at once, without sampling:
/// startup (work has begun), readiness (the first step is done), liveness (the process lives and keeps its
/// promise, or the run is done). *why is one sentence. kUsage for another word; kNotFound without a status
/// file.
Result<bool> probe_run(const std::string& run_directory, const std::string& question, std::string* why);

}  // namespace eaglet::monitor
