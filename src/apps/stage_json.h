#pragma once

#include "extract/extract.h"
#include "formats/json.h"
#include "generate/generate.h"
#include "generate/prepare.h"
#include "train/train.h"

namespace eaglet::apps {

/// The first stages' reports as JSON, for `--json` of their commands and for stage records (evaluate_json.h
/// has the others). Members keep their names.
Json generate_json(const GenerateReport& report);
Json prepare_json(const PrepareReport& report);
Json extract_json(const ExtractReport& report);
Json train_json(const TrainReport& report);

}  // namespace eaglet::apps
