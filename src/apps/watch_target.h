#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/progress.h"
#include "base/status.h"
#include "monitor/sampler.h"
#include "monitor/verdict.h"

namespace eaglet::apps {

/// A living run with what reads it.
struct WatchedRun {
  std::unique_ptr<monitor::DeviceSource> devices;
  std::unique_ptr<monitor::Sampler> sampler;
};
/// `gpu_metrics`: the address of a GPU exporter to read instead of the driver; "": as open_devices finds it.
Result<WatchedRun> open_run(const std::string& target, const std::string& gpu_metrics = {});

/// Where verdicts come from: a run on this machine, or one on another.
class VerdictSource {
 public:
  virtual ~VerdictSource() = default;
  /// The verdict as it is now. The first call may take seconds, later ones do not wait for long.
  virtual Status look(monitor::Verdict* verdict) = 0;
};
/// What is looked at, and how it is judged.
struct WatchQuestion {
  std::string target, gpu_metrics;
  monitor::Thresholds thresholds;
};
/// `host`: empty for this machine, else what ssh takes (host_link.h). `interval`: between two looks over
/// there.
Result<std::unique_ptr<VerdictSource>> open_verdicts(const std::string& host, const WatchQuestion& question,
                                                     double interval, Progress& progress);
/// One verdict after `seconds` of looking at a run on another machine.
Result<monitor::Verdict> judge_on_host(const std::string& host, const WatchQuestion& question, double seconds,
                                       Progress& progress);

/// "15s", "20m", "1h30m", "90": seconds. kUsage with an example otherwise.
Result<double> parse_duration(const std::string& text);

/// Sleeps until `monotonic` or an interrupt. `on_status` is called when somebody asks by SIGUSR1 how it goes.
void sleep_until(double monotonic, const std::function<void()>& on_status = {});

}  // namespace eaglet::apps
