#pragma once

#include <cstddef>
#include <cstdint>

namespace eaglet {

/// E4M3 as ONNX and torch call it e4m3fn: 4 exponent bits of bias 7, 3 mantissa bits, no infinity, S.1111.111
/// is NaN, largest 448, smallest 2^-9. Source: Micikevicius et al., "FP8 formats for deep learning" (2022).
float f8e4m3_to_f32(std::uint8_t bits);
/// Nearest even; beyond 448 (infinity too) the largest, a NaN stays one.
std::uint8_t f32_to_f8e4m3(float value);
/// E5M2: an fp16 without its low byte.
float f8e5m2_to_f32(std::uint8_t bits);

constexpr float kLargestF8E4M3 = 448.0f;

/// All 256 values of E4M3, for fast decoding.
const float* f8e4m3_table();

}  // namespace eaglet
