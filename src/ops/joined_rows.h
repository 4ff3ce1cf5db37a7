#pragma once

#include <cstdint>
#include <vector>

namespace eaglet {

// Weights that read one input (queries, keys, values; gate and up) multiply as one product whose rows hold
// all results side by side: [n, q | k | v].

/// to [n, width] = columns from `from` on of rows that lie `distance` floats apart, plus the bias [width];
/// nullptr: none.
void take_joined(std::int64_t n, std::int64_t width, std::int64_t distance, const float* from,
                 const float* bias, float* to);

/// Room for n floats that may be overwritten; grows, never shrinks.
float* room(std::vector<float>* buffer, std::int64_t n);

}  // namespace eaglet
