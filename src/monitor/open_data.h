#pragma once

#include <string>
#include <vector>

#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// Where a run's data comes from, as its open and mapped files show, whatever its flags say: the folder with
/// most files that look like data (states, arrays, conversations), of those below neither the run's output
/// nor the system. Empty when there is none, or when they may not be read.
DataFrom find_open_data(const ProcReader& reader, const std::vector<std::int64_t>& tree,
                        const std::string& output_dir);

/// "NFS", "Lustre", ...: a file system that is reached over a network; "" for a local one or an unknown one.
std::string network_filesystem(const std::string& path);

}  // namespace eaglet::monitor
