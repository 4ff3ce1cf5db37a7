#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "monitor/log_reader.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// Follows the file in which Trackio keeps a project's metrics (SQLite; docs/watch.md says where it is looked
/// for): what the newest run in it logged. For runs whose text log shows no metric.
class TrackioTail {
 public:
  /// Reads what is new. A file that cannot be read is tried again when it changed.
  void poll(const std::string& path);
  bool any() const { return any_; }
  LogFacts facts() const { return reader_.facts(); }
  /// When its newest record was made, in seconds since 1970; kNotKnown without one.
  double newest_time() const { return newest_time_; }
  /// Why it is not read; empty when it is.
  const std::string& trouble() const { return trouble_; }

 private:
  void begin(const std::string& run);
  std::string read_, run_, trouble_;  // read_: times and sizes of what was read last
  std::string last_id_ = "0";
  LogReader reader_;
  double newest_time_ = kNotKnown;
  bool any_ = false;
};

/// The file of a run that logs to Trackio, or "": one of `open_files` (what its processes have open for
/// writing), else the only one that changed since the run began, in the places where Trackio puts it by the
/// run's `environment` or below its output directory.
std::string find_trackio_file(const std::vector<std::string>& open_files,
                              const std::map<std::string, std::string>& environment,
                              const std::string& output_dir, double run_began);

}  // namespace eaglet::monitor
