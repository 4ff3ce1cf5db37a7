#include "apps/watch_target.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/interrupt.h"
#include "monitor/text_scan.h"

namespace eaglet::apps {

Result<WatchedRun> open_run(const std::string& target, const std::string& gpu_metrics) {
  const monitor::ProcReader reader;
  EAGLET_ASSIGN_OR_RETURN(monitor::Target found, monitor::resolve_target(target, reader));
  WatchedRun run;
  EAGLET_ASSIGN_OR_RETURN(run.devices, monitor::open_devices(gpu_metrics));
  run.sampler = std::make_unique<monitor::Sampler>(std::move(found), reader, run.devices.get());
  return run;
}

Result<double> parse_duration(const std::string& text) {
  const Status wrong(StatusCode::kUsage, "'" + text + "' is no duration", {}, "for example 15s, 20m, 1h30m");
  std::string_view rest = text;
  double seconds = 0;
  if (rest.empty()) return wrong;
  while (!rest.empty()) {
    std::string_view after;
    const auto value = monitor::leading_number(rest, &after);
    if (!value || !(*value >= 0) || *value > 1e9) return wrong;
    const char unit = after.empty() ? 's' : after.front();
    const double scale = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : unit == 'd' ? 86400 : 0;
    if (scale == 0) return wrong;
    seconds += *value * scale;
    rest = after.empty() ? after : after.substr(1);
  }
  return seconds;
}

void sleep_until(double monotonic, const std::function<void()>& on_status) {
  while (!interrupted()) {
    if (on_status && take_save_request()) on_status();
    const double left = monotonic - monotonic_seconds();
    if (left <= 0) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 0.1)));
  }
}

}  // namespace eaglet::apps
