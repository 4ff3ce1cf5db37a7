#include "device/cuda_device.h"
#include "device/cuda_tensor_core.h"
#include "ops/cuda_ops.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

// One pass over rows of numbers; `put` takes (row, column).
template <class Put>
__device__ void each_number(std::int64_t rows, std::int64_t width, const Put& put) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) put(row, i);
}

__device__ float widened(std::uint32_t bf16) {
  return bits_as_float(bf16 << 16);
}

__global__ void widen_bf16_rows(std::int64_t rows, std::int64_t width, const std::uint16_t* from,
                                std::int64_t ld, float* to, std::int64_t to_ld) {
  each_number(rows, width,
              [&](std::int64_t row, std::int64_t i) { to[row * to_ld + i] = widened(from[row * ld + i]); });
}

// e4m3: exponents 1..15 with bias 7; 0 is 2^-9 times the mantissa; all ones is no number.
__device__ float of_e4m3(std::uint32_t byte) {
  const std::uint32_t sign = (byte & 0x80u) << 24, magnitude = byte & 0x7fu;
  if (magnitude == 0x7fu) return bits_as_float(sign | 0x7fc00000u);
  if (magnitude >= 8u) return bits_as_float(sign | ((magnitude << 20) + (120u << 23)));
  const float small = static_cast<float>(magnitude) * 0x1p-9f;
  return sign != 0 ? -small : small;
}

__global__ void widen_fp8_rows(std::int64_t rows, std::int64_t width, const float* scales,
                               const std::uint8_t* from, std::int64_t ld, float* to, std::int64_t to_ld) {
  each_number(rows, width, [&](std::int64_t row, std::int64_t i) {
    to[row * to_ld + i] = low_of(pack_bf16(of_e4m3(from[row * ld + i]) * scales[row], 0.0f));
  });
}

struct Planes {
  const std::uint8_t *high = nullptr, *low = nullptr;
  const std::uint16_t* base = nullptr;
  std::int64_t base_ld = 0;
};
__global__ void join_rows(std::int64_t rows, std::int64_t width, Planes p, float* to, std::int64_t to_ld,
                          std::uint16_t* bits, std::int64_t bits_ld) {
  each_number(rows, width, [&](std::int64_t row, std::int64_t i) {
    const std::int64_t at = row * width + i;
    std::uint32_t number = static_cast<std::uint32_t>(p.high[at]) << 8 | p.low[at];
    if (p.base != nullptr) number = (number >> 1 ^ (0u - (number & 1u))) + p.base[row * p.base_ld + i];
    number &= 0xffffu;
    to[row * to_ld + i] = widened(number);
    if (bits != nullptr) bits[row * bits_ld + i] = static_cast<std::uint16_t>(number);
  });
}

}  // namespace

void widen_bf16(std::int64_t rows, std::int64_t width, const std::uint16_t* from, std::int64_t ld, float* to,
                std::int64_t to_ld) {
  if (rows * width == 0) return;
  launch("widen_bf16", widen_bf16_rows, dim3(blocks_for(rows, 1)), dim3(kThreads), rows, width, from, ld, to,
         to_ld);
}

void widen_fp8(std::int64_t rows, std::int64_t width, const float* scales, const std::uint8_t* from,
               std::int64_t ld, float* to, std::int64_t to_ld) {
  if (rows * width == 0) return;
  launch("widen_fp8", widen_fp8_rows, dim3(blocks_for(rows, 1)), dim3(kThreads), rows, width, scales, from,
         ld, to, to_ld);
}

void join_planes(std::int64_t rows, std::int64_t width, const std::uint8_t* high, const std::uint8_t* low,
                 const std::uint16_t* base, std::int64_t base_ld, float* to, std::int64_t to_ld,
                 std::uint16_t* bits, std::int64_t bits_ld) {
  if (rows * width == 0) return;
  launch("join_planes", join_rows, dim3(blocks_for(rows, 1)), dim3(kThreads), rows, width,
         Planes{high, low, base, base_ld}, to, to_ld, bits, bits_ld);
}

}  // namespace eaglet::cuda
