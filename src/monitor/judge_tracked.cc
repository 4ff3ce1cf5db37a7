// The hardware of a run that is over, or on another machine: what its tracker noted while it ran.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/judges.h"

namespace eaglet::monitor {
namespace {

constexpr double kFreshSeconds = 120;     // a tracker notes each ten seconds
constexpr double kLastWorkSeconds = 300;  // of a run that is over

/// By its state; or a tracker's file is all there is, and metrics and machine end in it together, some time
/// ago.
bool is_over(const Case& c) {
  const RunView& now = c.series.views.back();
  const double newest = c.series.tracked.back().time;
  const bool ended = !now.processes && now.wall - newest > kFreshSeconds &&
                     std::abs(now.log.metric_time - newest) < kLastWorkSeconds;
  return ended || c.state.state == RunState::kDead || c.state.state == RunState::kFinished;
}

bool idle(const TrackedMoment& moment, const Thresholds& thresholds) {
  return std::none_of(moment.devices.begin(), moment.devices.end(),
                      [&](const DeviceView& device) { return device.busy_pct >= thresholds.idle_busy_pct; });
}

/// One view for each moment. What came after the last work of a run that is over tells of no run.
RunSeries past_of(const Case& c) {
  RunSeries past;
  past.name = c.series.name;
  std::size_t end = c.series.tracked.size();
  while (is_over(c) && end > 0 && idle(c.series.tracked[end - 1], c.thresholds)) --end;
  for (std::size_t i = 0; i < end; ++i) {
    const TrackedMoment& moment = c.series.tracked[i];
    if (moment.devices.empty()) continue;
    RunView view;
    view.wall = view.monotonic = moment.time;
    view.devices = moment.devices;
    past.views.push_back(std::move(view));
  }
  return past;
}

void add_energy(const RunView& last, Judgements* all) {
  double joules = 0;
  for (const DeviceView& device : *last.devices)
    if (!std::isnan(device.energy_j)) joules += device.energy_j;
  if (!(joules > 0)) return;
  Judgement j =
      hardware_judgement("energy", Level::kOk, fmt::format("{:.3f} kWh since the run began", joules / 3.6e6));
  j.value = joules / 3.6e6;
  j.unit = "kWh";
  j.threshold = "none";
  all->push_back(std::move(j));
}

/// Only of a run whose machine is not this one: of this one it is measured.
void add_machine_memory(const Case& c, Judgements* all) {
  const TrackedMoment& newest = c.series.tracked.back();
  const bool here = c.series.views.back().processes && !c.series.views.back().processes->empty();
  if (here || std::isnan(newest.memory_share)) return;
  const bool full = newest.memory_share > c.thresholds.memory_crit;
  Judgement j = hardware_judgement(
      "memory", full ? Level::kCrit : Level::kOk,
      fmt::format("memory of its machine {:.0f} % full{}", 100 * newest.memory_share,
                  newest.memory_total > 0 ? " of " + human_bytes(newest.memory_total) : std::string()));
  j.value = newest.memory_share;
  j.unit = "share";
  j.threshold = fmt::format("crit > {}", c.thresholds.memory_crit);
  if (full) j.advice = "fewer workers, smaller prefetch, or more memory";
  all->push_back(std::move(j));
}

}  // namespace

Judgements judge_tracked(const Case& c) {
  const RunView& now = c.series.views.back();
  const bool measured = now.devices && !now.devices->empty();
  if (measured || c.series.tracked.empty()) return {};
  Judgements all;
  const double age = now.wall - c.series.tracked.back().time;
  if (!is_over(c) && age > kFreshSeconds) {
    all.push_back(hardware_judgement(
        "power", Level::kUnknown,
        fmt::format("its tracker's last word on the GPUs is {} old", human_duration(age))));
    return all;
  }
  const RunSeries past = past_of(c);
  if (!past.views.empty()) {
    Thresholds thresholds = c.thresholds;
    if (is_over(c)) thresholds.window_seconds = std::max(kLastWorkSeconds, thresholds.window_seconds);
    const Activity activity = activity_of(past, thresholds);
    all = judge_hardware({past, activity, c.state, c.config, thresholds});
    add_energy(past.views.back(), &all);
  }
  add_machine_memory(c, &all);
  const double until = past.views.empty() ? c.series.tracked.back().time : past.views.back().wall;
  const bool here = now.processes && !now.processes->empty();
  for (Judgement& j : all) {
    const bool bad = j.level == Level::kWarn || j.level == Level::kCrit;
    if (bad && !here && !is_over(c) && j.next.empty())
      j.next = "eaglet doctor --host USER@MACHINE " + c.series.name;
    j.reason += fmt::format(" (as Trackio noted, until {})", rfc3339_utc(until).substr(0, 19) + "Z");
  }
  return all;
}

}  // namespace eaglet::monitor
