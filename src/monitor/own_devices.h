#pragma once

#include <set>
#include <string>

#include "monitor/view.h"

namespace eaglet::monitor {

/// Which GPUs of a machine are the run's. The others' load and faults tell nothing of it: on a machine of
/// eight a run on one of them would else look idle, and a run without any would borrow its neighbours' work.
class OwnDevices {
 public:
  /// Leaves only the run's devices in the view; none at all where its processes hold no device file. In
  /// order:
  ///   the driver lists a process of the run on it (kept for the rest of the run's life)
  ///   `visible` (CUDA_VISIBLE_DEVICES of its processes: indices, UUIDs, beginnings of such) names it
  ///   no process of somebody else is on it; all of them in a container, where process ids are another
  ///   space's
  void restrict(const std::set<std::string>& visible, bool in_container, RunView* view);
  /// CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA numbers GPUs as the driver does. Else it begins with the fastest, and
  /// where they are of several kinds a number in `visible` says nothing.
  void numbered_by_bus() { by_bus_ = true; }

 private:
  bool by_bus_ = false;
  std::set<std::int64_t> seen_;  // with a process of the run
};

/// The same for saved views: devices that any view shows a process of the run on; else all.
void keep_own_devices(RunSeries* series);

}  // namespace eaglet::monitor
