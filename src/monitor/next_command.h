#pragma once

#include <string>

#include "monitor/judgement.h"
#include "monitor/run_state.h"

namespace eaglet::monitor {

/// The command to run next for a judgement that is bad and names none itself: where its cause is to be seen.
/// Never empty.
std::string next_command(const Judgement& judgement, const RunSeries& series, const Activity& activity);

}  // namespace eaglet::monitor
