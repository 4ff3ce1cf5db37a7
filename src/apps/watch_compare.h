#pragma once

#include <string>

#include "base/status.h"
#include "formats/json.h"
#include "monitor/thresholds.h"

namespace eaglet::apps {

/// Two runs side by side: what was set otherwise, and what became of it.
struct Comparison {
  std::string text, html;
  Json json;
};
/// `a` and `b` are what every watch command takes (run directory, log, process, name).
Result<Comparison> compare_runs(const std::string& a, const std::string& b,
                                const monitor::Thresholds& thresholds);

}  // namespace eaglet::apps
