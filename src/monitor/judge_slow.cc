// What only minutes show: memory that grows, energy for a token, what the kernel's log says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/judges.h"
#include "monitor/kernel_log.h"
#include "monitor/series_stats.h"

namespace eaglet::monitor {
namespace {

/// Median of a field over the points between two times.
double median_between(const std::vector<SlowPoint>& points, double from, double to,
                      double SlowPoint::*field) {
  std::vector<double> values;
  for (const SlowPoint& point : points)
    if (point.seconds >= from && point.seconds <= to) values.push_back(point.*field);
  return median(std::move(values));
}

struct Growth {
  double per_ten_minutes = 0, now = 0, seconds = 0;
};
/// Growth over the last `seconds`, when each third of them is above the one before: a leak does not pause.
std::optional<Growth> growth_of(const std::vector<SlowPoint>& points, double seconds,
                                double SlowPoint::*field) {
  if (points.empty() || points.back().seconds - points.front().seconds < seconds) return std::nullopt;
  const double end = points.back().seconds, begin = end - seconds, third = seconds / 3;
  const double a = median_between(points, begin, begin + third, field),
               b = median_between(points, begin + third, end - third, field),
               c = median_between(points, end - third, end, field);
  if (!(a < b && b < c)) return std::nullopt;
  return Growth{(c - a) / (2 * third) * 600, c, seconds};
}

void add_growth(const Case& c, Judgements* all) {
  const double share = c.thresholds.growth_warn, seconds = c.thresholds.growth_seconds;
  const auto add = [&](const char* name, double SlowPoint::*field, double total, const char* what,
                       const char* advice) {
    const auto growth = growth_of(c.series.slow, seconds, field);
    if (!growth || !(growth->per_ten_minutes > share * total)) return;
    Judgement j = hardware_judgement(name, Level::kWarn,
                                     fmt::format("{} grows by {} in 10 min, all the time for {}, to {}", what,
                                                 human_bytes(growth->per_ten_minutes),
                                                 human_duration(growth->seconds), human_bytes(growth->now)));
    j.value = growth->per_ten_minutes;
    j.unit = "bytes in 10 min";
    j.window_seconds = growth->seconds;
    j.threshold = fmt::format("warn > {:.0f} % of {} in 10 min", 100 * share, human_bytes(total));
    j.advice = advice;
    all->push_back(std::move(j));
  };
  add("memory_growth", &SlowPoint::rss_bytes, c.series.views.back().host.memory_total, "memory of the run",
      "a leak: loader workers that keep batches, or lists that keep tensors of past steps");
  double device_total = 0;
  for (const DeviceActivity& device : c.activity.devices) device_total += device.total_bytes;
  add("gpu_memory_growth", &SlowPoint::device_bytes, device_total, "GPU memory",
      "losses kept with their graph (use .item()), or fragmentation: expandable segments");
}

/// Power and energy for a token; a token that becomes dearer within an hour.
void add_energy(const Case& c, Judgements* all) {
  const auto& points = c.series.slow;
  if (points.size() < 2 || std::isnan(points.back().device_joules)) return;
  const auto per_token = [&](double from, double to) {
    const SlowPoint *first = nullptr, *last = nullptr;
    for (const SlowPoint& point : points) {
      if (point.seconds < from || point.seconds > to) continue;
      if (first == nullptr) first = &point;
      last = &point;
    }
    const double speed = median_between(points, from, to, &SlowPoint::tokens_per_second);
    if (first == last || !(speed > 0)) return kNotKnown;
    return (last->device_joules - first->device_joules) / (last->seconds - first->seconds) / speed;
  };
  const double end = points.back().seconds, begin = points.front().seconds;
  const double now = per_token(end - 600, end),
               joules = points.back().device_joules - points.front().device_joules;
  Judgement j = hardware_judgement(
      "energy", Level::kOk, fmt::format("{:.3f} kWh in {}", joules / 3.6e6, human_duration(end - begin)));
  j.window_seconds = std::min(600.0, end - begin);
  j.threshold =
      fmt::format("warn: a token costs {:.0f} % more than an hour ago", 100 * c.thresholds.energy_rise);
  if (!std::isnan(now)) {
    j.value = now;
    j.unit = "J per token";
    j.reason += fmt::format(", {:.3g} J per token", now);
    const double before = end - begin >= 3600 ? per_token(end - 3600, end - 3000) : kNotKnown;
    if (now > (1 + c.thresholds.energy_rise) * before) {
      j.level = Level::kWarn;
      j.reason = fmt::format("a token costs {:.3g} J, an hour ago {:.3g} J", now, before);
      j.advice = "clocks or heat (throttle), a neighbour on the GPU, or more padding than before";
    }
  }
  all->push_back(std::move(j));
}

/// Power of the processors: what a run without a GPU draws.
void add_package_power(const Case& c, Judgements* all) {
  const HostView &first = c.series.views[c.activity.first_view].host, &last = c.series.views.back().host;
  const double watts = (last.package_joules - first.package_joules) / c.activity.span_seconds;
  if (c.activity.devices_known || !std::isfinite(watts)) return;
  Judgement j =
      hardware_judgement("package_power", Level::kOk, fmt::format("processors draw {:.0f} W", watts));
  j.value = watts;
  j.unit = "W";
  j.window_seconds = c.activity.span_seconds;
  j.threshold = "none: threads that spin draw power too";
  all->push_back(std::move(j));
}

bool was_ours(const Case& c, const KernelLine& line) {
  for (const RunView& view : c.series.views)
    if (view.processes)
      for (const ProcessView& process : *view.processes)
        if (process.pid == line.pid) return true;
  return false;
}

void add_kernel_lines(const Case& c, Judgements* all) {
  if (!c.series.kernel) return;
  for (const KernelLine& line : *c.series.kernel) {
    const bool ours = was_ours(c, line);
    Judgement j = hardware_judgement("", Level::kWarn, "");
    switch (line.kind) {
      case KernelLine::Kind::kKilledForMemory:
        j.name = "oom_kill";
        j.level = ours ? Level::kCrit : Level::kWarn;
        j.reason = fmt::format("the kernel killed {} (pid {}) for memory{}", line.name, line.pid,
                               ours ? "" : ", not of this run: memory of the machine ran out");
        j.advice = "fewer workers, smaller prefetch, or more memory";
        break;
      case KernelLine::Kind::kXid:
        j.name = "xid";
        j.level = is_fatal_xid(line.code) ? Level::kCrit : Level::kWarn;
        j.reason = fmt::format("Xid {} on {} in the kernel's log", line.code, line.device);
        j.advice = is_fatal_xid(line.code) ? "a fault of the board or its link: drain this machine"
                                           : "usually follows an error of the program or a kill";
        break;
      case KernelLine::Kind::kHungTask:
        if (!ours) continue;
        j.name = "storage";
        j.reason = fmt::format("the kernel says that {} (pid {}) hangs", line.name, line.pid);
        j.advice = "the storage does not answer: check the mount it reads from";
        break;
    }
    j.value = static_cast<double>(line.kind == KernelLine::Kind::kXid ? line.code : line.pid);
    j.threshold = "any since the run began";
    j.next = "dmesg -T | tail -50";
    all->push_back(std::move(j));
  }
}

}  // namespace

Judgements judge_slow(const Case& c) {
  Judgements all;
  add_growth(c, &all);
  add_energy(c, &all);
  add_package_power(c, &all);
  add_kernel_lines(c, &all);
  return all;
}

}  // namespace eaglet::monitor
