#pragma once

#include <string>

#include "monitor/verdict.h"

namespace eaglet::monitor {

// One record a line, columns between tabs, for cut and awk. "-" is what is not known; texts hold no tab.

/// The judgements: layer, level, signal, value, unit, reason, advice. The first one is the run's state.
std::string verdict_plain(const Verdict& verdict);
/// The run at one moment: time, state, level, step, steps planned, loss, tokens/s, seconds to go, headline.
std::string moment_plain(const Verdict& verdict);
/// Columns joined by tabs, with a line end; what would break a column is replaced by a blank.
std::string plain_row(std::initializer_list<std::string> columns);

}  // namespace eaglet::monitor
