#pragma once

#include <string>

#include "base/status.h"

namespace eaglet {

/// Keeps in a store what makes its states (engine and arithmetic, as "native, products in bf16"), and
/// compares when the store is gone on with: states of two kinds in one store would train a draft on a
/// mixture. kConfig names both. A store without the note (older ones) gets it.
Status agree_on_maker(const std::string& store_path, const std::string& maker);

}  // namespace eaglet
