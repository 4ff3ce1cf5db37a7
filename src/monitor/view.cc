#include "monitor/view.h"

#include <algorithm>
#include <cmath>

#include "monitor/text_scan.h"

namespace eaglet::monitor {

double seconds_between(const RunView& earlier, const RunView& later) {
  if (!std::isnan(earlier.monotonic) && !std::isnan(later.monotonic))
    return later.monotonic - earlier.monotonic;
  if (!std::isnan(earlier.wall) && !std::isnan(later.wall)) return later.wall - earlier.wall;
  if (!earlier.processes || !later.processes) return 0;
  double oldest = 0;
  for (const ProcessView& before : *earlier.processes)
    for (const ProcessView& after : *later.processes)
      if (before.pid == after.pid && !std::isnan(before.elapsed_seconds) &&
          !std::isnan(after.elapsed_seconds))
        oldest = std::max(oldest, after.elapsed_seconds - before.elapsed_seconds);
  return oldest;
}

bool was_paused(const RunView& earlier, const RunView& later) {
  constexpr double kPauseSeconds = 20;
  return std::abs((later.wall - earlier.wall) - (later.monotonic - earlier.monotonic)) > kPauseSeconds;
}

bool looks_secret(const std::string& name) {
  const std::string low = lower(name);
  for (const char* part : {"key", "token", "secret", "password", "passwd", "credential"})
    if (contains(low, part)) return true;
  return false;
}

}  // namespace eaglet::monitor
