#pragma once

#include "extract/extract.h"
#include "formats/json.h"
#include "generate/generate.h"
#include "train/train.h"

namespace eaglet::apps {

/// The first stages' reports as JSON, for stage records and the run's report (evaluate_json.h has the
/// others). Members keep their names.
Json to_json(const GenerateReport& report);
Json to_json(const ExtractReport& report);
/// Checkpoint directories are given relative to `root`, so that a run directory can be moved.
Json to_json(const TrainReport& report, const std::string& root);

}  // namespace eaglet::apps
