#pragma once

#include <string>
#include <vector>

#include "monitor/log_facts.h"

namespace eaglet::monitor {

/// After a collective timed out on several ranks: the rank that stood at an earlier collective than the
/// others, by the sequence number that each watchdog printed. "rank 2 is behind: at collective 8839, the
/// others at 8841"; empty when they are equal or fewer than two ranks spoke.
std::string rank_behind(const std::vector<LogError>& errors);

}  // namespace eaglet::monitor
