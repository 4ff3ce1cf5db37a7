#include "tensor/float8.h"

#include <array>
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
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7f);
  const float magnitude = std::fabs(value);
  if (magnitude >= kLargestF8E4M3) return static_cast<std::uint8_t>(sign | 0x7e);
  int exponent = magnitude > 0 ? std::ilogb(magnitude) : -6;
  if (exponent < -6) exponent = -6;  // subnormal: steps of 2^-9
  // In steps of the last mantissa bit; a carry to 16 steps is the next exponent's 8, as the bits count on.
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  return static_cast<std::uint8_t>(sign | (((exponent + 6) << 3) + steps));
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
