#pragma once

#include <string>

#include "base/status.h"
#include "device/compute_type.h"

namespace eaglet {

/// Keeps in a store what makes its states (engine and arithmetic, as "native, products in bf16"), and
/// compares when the store is gone on with: states of two kinds in one store would train a draft on a
/// mixture. kConfig names both. A store without the note (older ones) gets it.
Status agree_on_maker(const std::string& store_path, const std::string& maker);
/// What the note says; empty where there is none.
std::string maker_of(const std::string& store_path);
/// The native engine's note.
std::string native_maker(ComputeType type);

}  // namespace eaglet
