#include "tensor/float8.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "tensor/dtype.h"

namespace eaglet {

float f8e4m3_to_f32(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 0xf, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

std::uint8_t f32_to_f8e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude >= std::bit_cast<std::uint32_t>(kLargestF8E4M3))
    return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-6f)) {
    // Below the normal numbers steps are 2^-9, which is what a float can tell apart between 2^14 and 2^15.
    constexpr float kMagic = 0x1p14f;
    const float rounded = std::bit_cast<float>(magnitude) + kMagic;
    return static_cast<std::uint8_t>(
        sign | (std::bit_cast<std::uint32_t>(rounded) - std::bit_cast<std::uint32_t>(kMagic)));
  }
  // Three mantissa bits stay; a carry out of them is the next exponent, as the bits count on.
  const std::uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return static_cast<std::uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

float f8e5m2_to_f32(std::uint8_t bits) {
  return f16_to_f32(static_cast<std::uint16_t>(bits << 8));
}

const float* f8e4m3_table() {
  static const std::array<float, 256> kTable = [] {
    std::array<float, 256> table;
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = f8e4m3_to_f32(static_cast<std::uint8_t>(i));
    return table;
  }();
  return kTable.data();
}

}  // namespace eaglet
