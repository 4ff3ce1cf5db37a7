#include "device/bf16_rounding_cuda.h"
#include "device/cuda_device.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

// Nearest even by bits, a NaN stays a quiet NaN: the same as tensor/dtype.h.
__device__ std::uint16_t rounded(std::uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__global__ void round_all(std::int64_t n, const std::uint32_t* from, std::uint16_t* to) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    to[i] = rounded(from[i]);
}

}  // namespace

void round_to_bf16(std::int64_t n, const float* from, std::uint16_t* to) {
  if (n == 0) return;
  launch("round_to_bf16", round_all, dim3(blocks_for(n, kThreads)), dim3(kThreads), n,
         reinterpret_cast<const std::uint32_t*>(from), to);
}

}  // namespace eaglet::cuda
