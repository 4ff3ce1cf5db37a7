#pragma once

#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "draft/draft_weights.h"
#include "formats/json.h"

namespace eaglet::apps {

/// The load report as the lines a user reads: what was loaded, filled, left over, changed.
std::string load_report_text(const LoadReport& report);
Json load_report_json(const LoadReport& report);
/// "2, 15, 27": ids of layers as eaglet counts them, with the meaning said once.
std::string layer_text(const std::vector<std::int32_t>& layers);

}  // namespace eaglet::apps
