#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// What a run says about itself right now (docs/formats/runlog.md).
struct RunStatus {
  std::int64_t pid = 0;
  double start_time = 0;  // of this process's work, seconds since 1970
  std::string host;       // of that process; StatusFile writes its own. "": an older file
  std::string run_id;     // stays the same when the run is resumed
  std::string phase;      // prepare | train | validate | checkpoint | done | interrupted | failed
  std::int64_t step = 0;  // last finished step, -1 before the first
  std::int64_t total = 0;
  double last_loss = 0;  // total loss of the last finished step; NaN = none yet
  double tokens_per_second = 0;
  /// Of the last step that was measured, as in the log; empty without a device.
  std::vector<std::pair<std::string, double>> device_seconds;
  double next_by = 0;  // promised time of the next update, seconds since 1970; 0 = the run is over
};

/// Keeps `<directory>/status.json` fresh: temporary name and rename, so a reader sees one whole state. Not
/// synced: it is about a living process. At most one write a second, unless the phase changed. Not
/// thread-safe.
class StatusFile {
 public:
  explicit StatusFile(const std::string& directory);
  Status update(const RunStatus& status);

 private:
  std::string path_, last_phase_;
  double last_write_ = -1;  // monotonic seconds
};

Result<RunStatus> read_status(const std::string& path);

}  // namespace eaglet
