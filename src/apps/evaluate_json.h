#pragma once

#include "evaluate/evaluate.h"
#include "formats/json.h"

namespace eaglet::apps {

/// What `eaglet evaluate --json` prints of each part; members keep their names.
Json evaluate_json(const EvaluateReport& report);
Json serve_json(const ServeReport& report);

}  // namespace eaglet::apps
