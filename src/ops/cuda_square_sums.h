#pragma once

// For .cu files only.

#include <cstdint>

namespace eaglet::cuda {

/// Sums of squares of parts of values [n], in double, in op_scratch memory: added up in order they are the
/// whole sum. count 0 when n is, or when the device has no memory, which is noted.
struct SquareSums {
  double* of_part = nullptr;
  unsigned count = 0;
};
SquareSums square_sums(std::int64_t n, const float* values);

}  // namespace eaglet::cuda
