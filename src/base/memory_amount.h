#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace eaglet {

/// A memory limit as people write it: "4G", "512M", "4294967296". kUsage.
Result<std::uint64_t> parse_memory(const std::string& text);

}  // namespace eaglet
