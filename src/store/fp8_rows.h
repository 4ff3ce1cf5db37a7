#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "store/state_codec.h"

namespace eaglet {

/// The rows of an fp8 record where they lie in its payload, for readers that take them as they are stored.
class Fp8Rows {
 public:
  struct Row {
    const std::byte* numbers = nullptr;  // e4m3 [hidden]; nullptr: no row is kept, its numbers are zeros
    float scale = 1;
  };
  /// kDataLoss when the payload is not as long as the mask asks for. The payload must outlive it.
  static Result<Fp8Rows> open(const StoreHeader& header, std::uint8_t encoding, const std::byte* payload,
                              std::uint64_t bytes, const std::vector<std::uint8_t>& mask);
  /// kDataLoss when its scale is no positive number.
  Result<Row> row(std::int64_t token, std::int64_t slot) const;

 private:
  std::int64_t number_of(std::int64_t token, std::int64_t slot) const;  // -1: not kept
  std::int64_t slots_ = 0, hidden_ = 0, count_ = 0;
  bool dropped_ = false;
  KeptRows kept_;
  const std::byte* payload_ = nullptr;
};

}  // namespace eaglet
