#include "monitor/slow_signals.h"

#include <sys/stat.h>

#include <cmath>

#include "base/files.h"

namespace eaglet::monitor {
namespace {

constexpr double kSlowSeconds = 30, kKernelSeconds = 5;
constexpr std::size_t kMostPoints = 240;

/// The sum of what is known; kNotKnown when nothing is.
void add_known(double value, double* sum) {
  if (!std::isnan(value)) *sum = std::isnan(*sum) ? value : *sum + value;
}

}  // namespace

SlowPoint slow_point_of(const RunView& view, const LogFacts& log) {
  SlowPoint point;
  point.seconds = view.monotonic;
  if (view.processes)
    for (const ProcessView& process : *view.processes) add_known(process.rss_bytes, &point.rss_bytes);
  if (view.devices)
    for (const DeviceView& device : *view.devices) {
      add_known(device.used_bytes, &point.device_bytes);
      add_known(device.energy_j, &point.device_joules);
    }
  const auto& speed = log.series("tokens_per_second");
  if (!speed.empty()) point.tokens_per_second = speed.back().value;
  return point;
}

void SlowSignals::add(double began_since_boot, RunView* view, RunSeries* series) {
  view->host.package_joules = package_.joules();
  idle_.add(*view, &series->idle_watts);
  if (view->monotonic >= next_kernel_ && !std::isnan(began_since_boot)) {
    next_kernel_ = view->monotonic + kKernelSeconds;
    kernel_.poll(began_since_boot, &lines_);
    series->kernel.reset();
    if (kernel_.known()) series->kernel = lines_;
  }
  if (view->monotonic < next_slow_) return;
  next_slow_ = view->monotonic + kSlowSeconds;
  series->slow.push_back(slow_point_of(*view, series->log));
  if (series->slow.size() > kMostPoints) series->slow.erase(series->slow.begin());
}

void SlowSignals::read_report(const std::string& output_dir, RunSeries* series) {
  if (output_dir.empty()) return;
  for (const std::string& path : {output_dir + "/report.json", output_dir + "/../report.json"}) {
    struct stat info = {};
    if (::stat(path.c_str(), &info) != 0 || info.st_size > (1 << 20)) continue;
    const auto time = static_cast<double>(info.st_mtime);
    if (time == report_time_ || time < series->run_began) return;  // of an earlier run in this directory
    report_time_ = time;
    const auto report = read_json_file(path);
    if (!report.ok() || !report->is_object()) return;
    const Json served = report->value("served_acceptance_length", Json(nullptr));
    series->served_acceptance = served.is_number() ? served.get<double>() : kNotKnown;
    return;
  }
}

}  // namespace eaglet::monitor
