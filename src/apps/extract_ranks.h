#pragma once

#include "base/progress.h"
#include "base/status.h"
#include "extract/extract.h"

namespace eaglet::apps {

/// extract(), by all ranks of the launcher (mpirun, srun): each takes its share of the documents, cores and
/// memory. `leads`: this rank speaks for all; the others are silent and come back with an empty report.
/// kUsage: ranks and --writer together, or ranks asking servers; a rank's failure reaches the others with its
/// name.
Result<ExtractReport> extract_with_ranks(ExtractOptions options, Progress& progress, bool* leads);

}  // namespace eaglet::apps
