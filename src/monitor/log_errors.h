#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "monitor/log_facts.h"

namespace eaglet::monitor {

/// The failure a line of a log tells about, or nullopt: Python exceptions, out of memory, NCCL's watchdog, a
/// launcher's report on a dead child, signals, a full disk. A WARNING is none. `line` is without controls and
/// prefixes; *rank_ is set when the line names one.
std::optional<LogError> find_error(std::string_view line);

/// Prefixes of launchers and loggers taken off: "[rank0]:", "[default1]:", "(Worker pid=7)", times,
/// "INFO:name:", "2026-03-04 10:00:06 | INFO | trainer |". What they said comes back.
struct LinePrefix {
  std::string rank, level;
  double time = LogFacts::kNone;  // seconds since 1970, or of the day when there was no date
  bool time_has_date = false;
};
std::string_view without_prefix(std::string_view line, LinePrefix* prefix);

}  // namespace eaglet::monitor
