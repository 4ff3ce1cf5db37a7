#include "ops/stored_states.h"

#include "ops/device_ops.h"
#include "tensor/dtype.h"
#include "tensor/float8.h"

namespace eaglet {

void widen_bf16(std::int64_t rows, std::int64_t width, const std::uint16_t* from, std::int64_t ld, float* to,
                std::int64_t to_ld) {
  if (const DeviceOps* device = device_ops(to)) return device->widen_bf16(rows, width, from, ld, to, to_ld);
  for (std::int64_t row = 0; row < rows; ++row)
    convert_to_f32(Dtype::kBF16, from + row * ld, static_cast<std::size_t>(width), to + row * to_ld);
}

void widen_fp8(std::int64_t rows, std::int64_t width, const float* scales, const std::uint8_t* from,
               std::int64_t ld, float* to, std::int64_t to_ld) {
  if (const DeviceOps* device = device_ops(to))
    return device->widen_fp8(rows, width, scales, from, ld, to, to_ld);
  const float* table = f8e4m3_table();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < width; ++i)
      to[row * to_ld + i] = bf16_to_f32(f32_to_bf16(table[from[row * ld + i]] * scales[row]));
}

void join_planes(std::int64_t rows, std::int64_t width, const std::uint8_t* high, const std::uint8_t* low,
                 const std::uint16_t* base, std::int64_t base_ld, float* to, std::int64_t to_ld,
                 std::uint16_t* bits, std::int64_t bits_ld) {
  if (const DeviceOps* device = device_ops(to))
    return device->join_planes(rows, width, high, low, base, base_ld, to, to_ld, bits, bits_ld);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = row * width + i;
      std::uint32_t number = static_cast<std::uint32_t>(high[at]) << 8 | low[at];
      if (base != nullptr) number = (number >> 1 ^ (0u - (number & 1u))) + base[row * base_ld + i];
      const auto rounded = static_cast<std::uint16_t>(number);
      to[row * to_ld + i] = bf16_to_f32(rounded);
      if (bits != nullptr) bits[row * bits_ld + i] = rounded;
    }
}

}  // namespace eaglet
