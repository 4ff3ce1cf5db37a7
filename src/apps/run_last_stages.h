#pragma once

#include <string>
#include <vector>

#include "apps/recipe.h"
#include "apps/run_form.h"
#include "base/progress.h"
#include "formats/json.h"

namespace eaglet::apps {

/// Writes a run's draft for servers: form.draft below `root`, and the speculators layout beside it when the
/// recipe asks for it. What the stage's record keeps.
Result<Json> export_for_run(const Recipe& recipe, const RunForm& form, const std::string& root,
                            const std::string& checkpoint, Progress& progress);

/// Answers the held-out prompts `ids` with and without the draft.
Result<Json> serve_for_run(const Recipe& recipe, const RunForm& form, const std::string& root,
                           const std::string& checkpoint, std::vector<std::string> ids, Progress& progress);

}  // namespace eaglet::apps
