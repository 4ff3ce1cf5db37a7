#include "apps/device_time_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "monitor/metric_names.h"

namespace eaglet::apps {
namespace {

double newest(const monitor::Verdict& v, const std::string& metric) {
  const auto& samples = v.log.series(metric);
  return samples.empty() ? NAN : samples.back().value;
}

// Those of the newest measured step: an op that was not there in it has an older sample, or none.
std::vector<std::pair<double, std::string_view>> newest_ops(const monitor::Verdict& v) {
  std::int64_t record = -1;
  for (const std::string_view op : monitor::device_ops())
    if (const auto& samples = v.log.series(monitor::device_time_metric(op)); !samples.empty())
      record = std::max(record, samples.back().record);
  std::vector<std::pair<double, std::string_view>> ops;
  for (const std::string_view op : monitor::device_ops())
    if (const auto& samples = v.log.series(monitor::device_time_metric(op));
        !samples.empty() && samples.back().record == record)
      ops.emplace_back(samples.back().value, op);
  std::sort(ops.rbegin(), ops.rend());
  return ops;
}

// Power and memory are those of the devices that the run's processes use, looked at from outside.
std::string beside(const monitor::Verdict& v, double step_seconds) {
  std::string text;
  const auto add = [&](double value, const std::string& what) {
    if (std::isfinite(value)) text += (text.empty() ? "; " : ", ") + what;
  };
  const double wait = newest(v, "data_wait_seconds") / step_seconds, mfu = newest(v, "mfu_ratio");
  add(wait, fmt::format("waits for data {:.1f} %", 100 * wait));
  add(mfu, fmt::format("MFU {:.1f} %", 100 * mfu));
  double watts = 0, bytes = 0;
  for (const auto& device : v.activity.devices) {
    watts += device.power_w;
    bytes += device.used_bytes;
  }
  if (v.activity.devices.empty()) return text;
  add(watts, fmt::format("{:.0f} W", watts));
  add(bytes, fmt::format("{:.1f} GiB", bytes / (1 << 30)));
  return text;
}

}  // namespace

std::string device_time_text(const monitor::Verdict& v) {
  const auto ops = newest_ops(v);
  const double step_seconds = newest(v, "step_seconds");
  if (ops.empty() || !(step_seconds > 0)) return {};
  std::string text;
  for (const auto& [seconds, op] : ops)
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", op, 100 * seconds / step_seconds);
  return text + " of a step" + beside(v, step_seconds);
}

}  // namespace eaglet::apps
