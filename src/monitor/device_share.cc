#include "monitor/device_share.h"

#include <algorithm>
#include <cmath>

namespace eaglet::monitor {

DeviceShare share_of_device(const RunSeries& series, std::size_t first_view, std::int64_t device) {
  constexpr int kLeastLooks = 3;
  DeviceShare share;
  if (series.in_container) return share;
  double own = 0;
  int looks = 0;
  std::map<std::int64_t, double> others;
  for (std::size_t v = first_view; v < series.views.size(); ++v) {
    const RunView& view = series.views[v];
    if (!view.device_processes || !view.processes || !view.only_this_run) continue;
    bool told = false;
    for (const DeviceProcess& process : *view.device_processes) {
      if (process.device != device || std::isnan(process.busy_pct)) continue;
      told = true;
      const bool ours = std::any_of(view.processes->begin(), view.processes->end(),
                                    [&](const ProcessView& one) { return one.pid == process.pid; });
      (ours ? own : others[process.pid]) += process.busy_pct;
    }
    looks += told;
  }
  if (looks < kLeastLooks) return share;
  share.own_pct = own / looks;
  share.foreign_pct = 0;
  double most = 0;
  for (const auto& [pid, sum] : others) {
    share.foreign_pct += sum / looks;
    if (sum <= most) continue;
    most = sum;
    share.foreign_pid = pid;
  }
  return share;
}

}  // namespace eaglet::monitor
