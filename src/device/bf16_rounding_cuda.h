#pragma once

#include <cstdint>

namespace eaglet::cuda {

/// bf16_rounding.h's round_to_bf16() in device memory.
void round_to_bf16(std::int64_t n, const float* from, std::uint16_t* to);

}  // namespace eaglet::cuda
