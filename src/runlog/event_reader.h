#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// One scalar of a TensorBoard event file.
struct ScalarEvent {
  double wall_time_seconds = 0;
  std::int64_t step = 0;
  std::string tag;
  double value = 0;  // NaN is legal
};

/// Decodes the bytes of an event file as they come, in any cut. Half a record at the end waits for more;
/// nothing is ever skipped by guessing: a checksum that is wrong ends the reading with kDataLoss. Both ways
/// in which scalars are stored are understood (simple_value, and one-element float or double tensors).
class EventReader {
 public:
  /// Appends what the new bytes complete.
  Status feed(std::string_view bytes, std::vector<ScalarEvent>* events);
  /// Offset behind the last whole record: where to go on after a restart.
  std::uint64_t good_bytes() const { return good_bytes_; }

 private:
  static constexpr std::uint64_t kLongestRecord = 64u << 20;
  std::string pending_;
  std::uint64_t good_bytes_ = 0;
  bool broken_ = false;
};

}  // namespace eaglet
