#pragma once

#include "generate/generate.h"

namespace eaglet {

/// generate() with servers: see docs/generate-from-servers.md.
Result<GenerateReport> generate_served(const GenerateOptions& options, Progress& progress);

}  // namespace eaglet
