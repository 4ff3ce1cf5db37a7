#include "device/cuda_device.h"
#include "device/cuda_op_times.h"
#include "device/cuda_product.h"
#include "device/device_products_cuda.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

// Nearest even by bits, a NaN stays a quiet NaN: the same as tensor/dtype.h.
__device__ std::uint16_t rounded(std::uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Bits of the numbers: a device has no other way to look at them that the host has too.
__global__ void round_rows(std::int64_t rows, std::int64_t width, const std::uint32_t* from, std::int64_t ld,
                           std::uint16_t* to) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for (std::int64_t j = threadIdx.x; j < width; j += kThreads)
      to[row * width + j] = rounded(from[row * ld + j]);
}

void* take(std::uint64_t bytes) {
  void* memory = nullptr;
  note(cudaMalloc(&memory, bytes), "memory for rounded operands");
  return memory;
}

void give_back(void* memory) {
  note(cudaFree(memory), "cudaFree");
}

void multiply(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n, std::int64_t k,
              const std::uint16_t* a, std::int64_t lda, const std::uint16_t* b, std::int64_t ldb, float beta,
              float* c, std::int64_t ldc) {
  const TimedOp timed(OpGroup::kProducts);
  product(m, n, k, 1.0f, {a, ComputeType::kBf16, lda, a_transposed},
          {b, ComputeType::kBf16, ldb, b_transposed}, beta, c, ldc);
}

void round_to_bf16(std::int64_t rows, std::int64_t width, const float* from, std::int64_t ld,
                   std::uint16_t* to) {
  if (rows * width == 0) return;
  const TimedOp timed(OpGroup::kProducts);
  launch("round_to_bf16", round_rows, dim3(blocks_for(rows, 1)), dim3(kThreads), rows, width,
         reinterpret_cast<const std::uint32_t*>(from), ld, to);
}

}  // namespace

const DeviceProducts* products_in_bf16() {
  static const DeviceProducts calls = {&take, &give_back, &round_to_bf16, &multiply};
  return &calls;
}

}  // namespace eaglet::cuda
