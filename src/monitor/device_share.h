#pragma once

#include "monitor/view.h"

namespace eaglet::monitor {

/// Whose work a GPU does, in percent of the time, as means over the looks in which the driver told. A board
/// says only that it is busy; with two programs on it, that may be the other one's work.
struct DeviceShare {
  double own_pct = kNotKnown, foreign_pct = kNotKnown;
  std::int64_t foreign_pid = -1;  // who of the others works most; -1: nobody
};

/// Not known with fewer than three looks that told, in a container (process ids are another space's), and for
/// tables that hold more than this run.
DeviceShare share_of_device(const RunSeries& series, std::size_t first_view, std::int64_t device);

}  // namespace eaglet::monitor
