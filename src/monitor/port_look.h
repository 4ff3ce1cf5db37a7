#pragma once

#include <map>
#include <set>
#include <string>

#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// Whether the port by which the ranks of a run find each other (MASTER_PORT) is in somebody else's hands:
/// left over from a dead run, or another run with the same default. Looks at every process's descriptors, so
/// it is asked only until the run has made its first step.
///   environment: of one rank; a MASTER_ADDR of another machine ends the look
///   tree: the run's own processes; first_start_ticks: of the oldest of them
PortSeen look_at_port(const ProcReader& reader, const std::map<std::string, std::string>& environment,
                      const std::set<std::int64_t>& tree, double first_start_ticks);

}  // namespace eaglet::monitor
