#pragma once

#include <cstdint>

namespace eaglet {

/// y [n, width] = bias [width] in every row plus y. A bias of nullptr is none.
void add_bias(std::int64_t n, std::int64_t width, const float* bias, float* y);
/// db [width] += sum over rows of dy [n, width]; nullptr: nothing. Same bits for any thread count.
void bias_backward(std::int64_t n, std::int64_t width, const float* dy, float* db);

}  // namespace eaglet
