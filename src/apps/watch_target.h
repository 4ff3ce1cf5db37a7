#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "monitor/sampler.h"

namespace eaglet::apps {

/// A living run with what reads it.
struct WatchedRun {
  std::unique_ptr<monitor::DeviceSource> devices;
  std::unique_ptr<monitor::Sampler> sampler;
};
Result<WatchedRun> open_run(const std::string& target);

/// "15s", "20m", "1h30m", "90": seconds. kUsage with an example otherwise.
Result<double> parse_duration(const std::string& text);

/// Sleeps until `monotonic` or an interrupt.
void sleep_until(double monotonic);

}  // namespace eaglet::apps
