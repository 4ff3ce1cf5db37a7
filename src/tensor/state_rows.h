#pragma once

#include <cstdint>

#include "base/status.h"

namespace eaglet {

/// States of a batch that are read when a chunk of its rows needs them, for batches too long to be held in
/// memory.
class StateRows {
 public:
  virtual ~StateRows() = default;
  /// Batch rows [first, first + n), all of one document: to [n, captured layers * width] or [n, width], fp32.
  virtual Status read_aux(std::int64_t first, std::int64_t n, float* to) = 0;
  virtual Status read_last(std::int64_t first, std::int64_t n, float* to) = 0;
};

}  // namespace eaglet
