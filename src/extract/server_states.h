#pragma once

#include "base/progress.h"
#include "base/status.h"
#include "extract/extract.h"

namespace eaglet {

/// extract() with `options.servers`: vLLM servers compute the states and leave each document's in a file
/// (docs/formats/foreign-states.md, "From a running vLLM"); they are checked, taken into the store and
/// deleted.
Result<ExtractReport> extract_from_servers(const ExtractOptions& options, Progress& progress);

}  // namespace eaglet
