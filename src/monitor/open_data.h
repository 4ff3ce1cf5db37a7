#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// Where a run's data comes from, as its open and mapped files show, whatever its flags say: the folder with
/// most files that look like data (states, arrays, conversations), of those below neither the run's output
/// nor the system. Empty when there is none, or when they may not be read.
DataFrom find_open_data(const ProcReader& reader, const std::vector<std::int64_t>& tree,
                        const std::string& output_dir);

/// When to look for it again as long as nothing is found: after half a minute, then each time after twice as
/// long, up to ten minutes. A run that has more processes than ever before (loaders begin) starts over.
class DataLookPause {
 public:
  /// Whether it is time, by a clock of seconds; if so, the next time is counted from here.
  bool over(double now, std::size_t processes);

 private:
  double last_ = -1e18, pause_seconds_ = 0;
  std::size_t most_processes_ = 0;
};

/// "NFS", "Lustre", ...: a file system that is reached over a network; "" for a local one or an unknown one.
std::string network_filesystem(const std::string& path);

}  // namespace eaglet::monitor
