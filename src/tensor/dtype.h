#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace eaglet {

/// Element types of stored tensors. Values are written to disk: never renumber.
enum class Dtype : std::uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kF64 = 3,
  kI64 = 4,
  kI32 = 5,
  kU8 = 6,
  kBool = 7,
  kF8E4M3 = 8,
  kI8 = 9,
  kI16 = 10,
  kU16 = 11,
  kU32 = 12,
  kU64 = 13,
  kF8E5M2 = 14,
};

std::size_t dtype_bytes(Dtype dtype);
/// The safetensors spelling: "F32", "BF16", ...
std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

/// bf16 <-> fp32. Rounding is to nearest even; a NaN stays a (quiet) NaN.
inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);

/// Converts n elements of dtype F32, BF16, F16 or F64 to fp32. Returns false for other types.
bool convert_to_f32(Dtype dtype, const void* from, std::size_t n, float* to);

}  // namespace eaglet
