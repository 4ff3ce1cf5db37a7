#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// Reads saved views as colleagues mail them: folders with any of clock.txt, ps.txt, gpu.csv,
/// compute_apps.csv, files.txt, train.log, train_config.json, status.json; oldest first. A folder of view
/// folders is taken in name order. kNotFound when a folder is missing; kDataLoss when it holds none of these
/// files.
Result<RunSeries> read_saved_views(const std::vector<std::string>& directories);

/// A log file read in bounded memory: whole up to 32 MiB, else the beginning (configuration lines) and the
/// end.
struct LogRead {
  LogFacts facts;
  std::string note;  // what was left out, or empty
};
Result<LogRead> read_log_file(const std::string& path);

}  // namespace eaglet::monitor
