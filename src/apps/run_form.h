#pragma once

#include <string>

#include "apps/recipe.h"
#include "base/status.h"
#include "export/export.h"

namespace eaglet::apps {

/// What the last stages of a run make for this recipe's target, and what they measure it with. llama.cpp
/// reads GGUF files only; a transformers folder is served by vLLM or SGLang, and measured by our own engine.
struct RunForm {
  ExportLayout layout = ExportLayout::kGguf;
  std::string draft;            // what the export stage writes, relative to the run directory
  std::string serve = "llama";  // llama or native
};

/// From export.to and serve.with, where "auto" goes by the target. kConfig where the two do not fit the
/// target or each other.
Result<RunForm> run_form(const Recipe& recipe);

}  // namespace eaglet::apps
