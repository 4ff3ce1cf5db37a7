#pragma once

#include <cstdint>

namespace eaglet {

/// to [n] = from [n] rounded to bf16, nearest even; a NaN stays a (quiet) NaN. On num_threads() threads.
void round_to_bf16(std::int64_t n, const float* from, std::uint16_t* to);
/// The same on the calling thread.
void round_row_to_bf16(std::int64_t n, const float* from, std::uint16_t* to);

}  // namespace eaglet
