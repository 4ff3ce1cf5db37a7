#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "store/store.h"

namespace eaglet {

/// Finished shards whose states are holes of the file: zeros that take no disk. A store of terabytes can so
/// be opened and read where only a few megabytes are free. For measurements (`eaglet bench store`) and tests.
class HoleShards {
 public:
  explicit HoleShards(StoreHeader header) : header_(std::move(header)) {}
  /// Writes `path` with documents that all have `tokens` tokens (ids 0, 1, 2, ..., the second half
  /// supervised).
  Status write(const std::string& path, const std::vector<std::string>& names, std::int64_t tokens);

 private:
  std::uint64_t zeros_checksum(std::uint64_t bytes);
  StoreHeader header_;
  std::map<std::uint64_t, std::uint64_t> checksums_;  // of so many zeros
};

}  // namespace eaglet
