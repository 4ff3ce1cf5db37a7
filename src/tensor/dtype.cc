#include "tensor/dtype.h"

#include <cmath>
#include <cstring>

namespace eaglet {
namespace {
struct DtypeFacts {
  Dtype dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr DtypeFacts kFacts[] = {
    {Dtype::kF32, "F32", 4}, {Dtype::kBF16, "BF16", 2}, {Dtype::kF16, "F16", 2},
    {Dtype::kF64, "F64", 8}, {Dtype::kI64, "I64", 8},   {Dtype::kI32, "I32", 4},
    {Dtype::kU8, "U8", 1},   {Dtype::kBool, "BOOL", 1}, {Dtype::kF8E4M3, "F8_E4M3", 1},
    {Dtype::kI8, "I8", 1},   {Dtype::kI16, "I16", 2},   {Dtype::kU16, "U16", 2},
    {Dtype::kU32, "U32", 4}, {Dtype::kU64, "U64", 8},   {Dtype::kF8E5M2, "F8_E5M2", 1},
};
const DtypeFacts& facts(Dtype dtype) {
  return kFacts[static_cast<std::size_t>(dtype)];
}
}  // namespace

std::size_t dtype_bytes(Dtype dtype) {
  return facts(dtype).bytes;
}
std::string_view dtype_name(Dtype dtype) {
  return facts(dtype).name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeFacts& f : kFacts)
    if (f.name == name) return f.dtype;
  return std::nullopt;
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal: mantissa * 2^-24
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 0xffu : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x1.0p-14f) {  // subnormal: nearbyint rounds to nearest even
    return static_cast<std::uint16_t>(sign |
                                      static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  const std::uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

namespace {
// Tensors of foreign files may begin at any byte, hence memcpy; compilers make plain loads of it.
template <class Stored, class Widen>
void widen(const void* from, std::size_t n, float* to, const Widen& to_float) {
  const auto* at = static_cast<const std::byte*>(from);
  for (std::size_t i = 0; i < n; ++i) {
    Stored value;
    std::memcpy(&value, at + i * sizeof(Stored), sizeof(Stored));
    to[i] = to_float(value);
  }
}
}  // namespace

bool convert_to_f32(Dtype dtype, const void* from, std::size_t n, float* to) {
  switch (dtype) {
    case Dtype::kF32:
      if (n > 0) std::memcpy(to, from, n * sizeof(float));
      return true;
    case Dtype::kBF16:
      widen<std::uint16_t>(from, n, to, bf16_to_f32);
      return true;
    case Dtype::kF16:
      widen<std::uint16_t>(from, n, to, f16_to_f32);
      return true;
    case Dtype::kF64:
      widen<double>(from, n, to, [](double value) { return static_cast<float>(value); });
      return true;
    default:
      return false;
  }
}

}  // namespace eaglet
