#pragma once

#include <string_view>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

/// What Trackio noted of the machine in one record of its table `system_metrics`: "gpu/0/power",
/// "rank3/gpu/0/utilization", "memory/percent". Nothing of it that is not known is invented; a record of
/// other things has no devices.
TrackedMoment tracked_moment(std::string_view record, double time);

/// Adds a record, oldest first: what several ranks note within seconds of each other is one moment. Keeps the
/// last quarter hour.
void add_tracked(TrackedMoment moment, std::vector<TrackedMoment>* moments);

}  // namespace eaglet::monitor
