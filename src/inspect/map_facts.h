#pragma once

#include "inspect/inspect.h"

namespace eaglet {

/// What a draft vocabulary map in any layout that `eaglet vocab` reads has to tell: sizes, order, hashes. A
/// map that cannot be becomes a problem.
void add_map_facts(const InspectOptions& options, Inspection* inspection);

}  // namespace eaglet
