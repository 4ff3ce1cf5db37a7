#pragma once

#include <string>
#include <vector>

#include "formats/json.h"
#include "runlog/log_record.h"

namespace eaglet::apps {

/// report.html: one page with nothing outside itself (no script, no font, no picture from elsewhere),
/// readable in light and dark. `report` is report.json, `log` the training's effective records, `recipe` the
/// resolved recipe.
std::string report_html(const Json& report, const std::vector<LogRecord>& log, const std::string& recipe);

}  // namespace eaglet::apps
