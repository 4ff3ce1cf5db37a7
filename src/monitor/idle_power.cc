#include "monitor/idle_power.h"

#include <algorithm>
#include <cmath>

namespace eaglet::monitor {
namespace {

constexpr double kMinuteSeconds = 60, kBusyPct = 5;
constexpr std::size_t kLeastReadings = 20, kMostReadings = 1000;

}  // namespace

void IdlePower::add(const RunView& view, std::map<std::int64_t, double>* watts) {
  if (!view.devices || !view.device_processes) return;
  for (const DeviceView& device : *view.devices) {
    const bool used = std::any_of(view.device_processes->begin(), view.device_processes->end(),
                                  [&](const DeviceProcess& p) { return p.device == device.index; });
    std::deque<Reading>& readings = free_[device.index];
    // What is not known is not idle.
    if (used || !(device.busy_pct < kBusyPct) || std::isnan(device.power_w)) {
      readings.clear();
      continue;
    }
    readings.push_back({view.monotonic, device.power_w});
    while (readings.size() > kMostReadings || view.monotonic - readings.front().seconds > kMinuteSeconds)
      readings.pop_front();
    if (readings.size() < kLeastReadings || view.monotonic - readings.front().seconds < kMinuteSeconds - 5)
      continue;
    double sum = 0;
    for (const Reading& reading : readings) sum += reading.watts;
    const double mean = sum / static_cast<double>(readings.size());
    const auto [lowest, first] = watts->emplace(device.index, mean);
    if (!first) lowest->second = std::min(lowest->second, mean);
  }
}

}  // namespace eaglet::monitor
