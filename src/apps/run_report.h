#pragma once

#include <map>
#include <string>

#include "apps/recipe.h"
#include "apps/run_pipeline.h"
#include "base/status.h"
#include "formats/json.h"

namespace eaglet::apps {

/// report.json of a finished run (docs/run-directory.md), from its stage records alone.
Json run_report(const Recipe& recipe, const RunPipeline& pipeline);

/// The final table, one fact a line, with the sentence about break-even below it.
std::string report_table(const Json& report, bool color);

/// What the served measurement says, plainly: faster or not, what would be needed here, and what the same
/// acceptance is worth on a large target. Empty when nothing was served.
std::string verdict(const Json& report);

}  // namespace eaglet::apps
