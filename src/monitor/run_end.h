#pragma once

#include "monitor/run_state.h"

namespace eaglet::monitor {

/// How a run that is gone ended: finished, or dead and why (its log's error, a signal, the kernel), with the
/// checkpoint to resume from and what it left behind. `so_far` holds phase, silence and orphans.
/// What helps against it; "" when that is not known.
std::string advice_for(const LogError& error);

StateVerdict judge_end(const RunSeries& series, const Activity& activity, StateVerdict so_far);

}  // namespace eaglet::monitor
