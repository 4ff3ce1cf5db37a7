#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// The shards a store directory holds, by number.
struct StoreFiles {
  std::vector<std::uint64_t> finished, unfinished;  // ascending
};
Result<StoreFiles> list_store(const std::string& directory);
/// "<directory>/000042.shard"
std::string shard_path(const std::string& directory, std::uint64_t number);

}  // namespace eaglet
