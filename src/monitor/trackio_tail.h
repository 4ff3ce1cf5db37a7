#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "monitor/log_reader.h"
#include "monitor/sqlite_file.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// Follows the file in which Trackio keeps a project's metrics (SQLite; docs/watch.md says where it is looked
/// for): what the newest run in it logged, the configuration it was given, and the alerts that the trainer's
/// code raised.
class TrackioTail {
 public:
  /// Reads what is new. A file that cannot be read is tried again when it changed.
  void poll(const std::string& path);
  bool any() const { return any_; }
  LogFacts facts() const { return reader_.facts(); }
  /// When its newest record was made, in seconds since 1970; kNotKnown without one.
  double newest_time() const { return newest_time_; }
  const std::vector<TrackerAlert>& alerts() const { return alerts_; }
  const std::optional<Json>& config() const { return config_; }
  /// The run's machine in its last quarter hour (trackio_machine.h); empty where Trackio was not asked for
  /// it.
  const std::vector<TrackedMoment>& machine() const { return machine_; }
  /// Why it is not read; empty when it is.
  const std::string& trouble() const { return trouble_; }

 private:
  void begin(const std::string& run);
  Status read_metrics(const SqliteFile& file);
  void read_machine(const SqliteFile& file);
  void read_alerts(const SqliteFile& file);
  void read_config(const SqliteFile& file);
  std::string read_, run_, trouble_;  // read_: times and sizes of what was read last
  std::string last_id_ = "0", last_machine_id_ = "0";
  LogReader reader_;
  std::vector<TrackerAlert> alerts_;
  std::vector<TrackedMoment> machine_;
  std::optional<Json> config_;
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
