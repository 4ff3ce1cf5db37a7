#include "device/cuda_device.h"
#include "ops/cuda_columns.h"
#include "ops/cuda_ops.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void add_to_rows(std::int64_t n, std::int64_t width, const float* bias, float* y) {
  for (std::int64_t row = blockIdx.x; row < n; row += gridDim.x)
    for (std::int64_t j = threadIdx.x; j < width; j += kThreads) y[row * width + j] += bias[j];
}

struct BiasGradientTerm {
  std::int64_t width;
  const float* dy;
  __device__ float operator()(std::int64_t row, std::int64_t column) const {
    return dy[row * width + column];
  }
};

}  // namespace

void add_bias(std::int64_t n, std::int64_t width, const float* bias, float* y) {
  if (n == 0 || bias == nullptr) return;
  launch("add_bias", add_to_rows, dim3(blocks_for(n, 1)), dim3(kThreads), n, width, bias, y);
}

void bias_backward(std::int64_t n, std::int64_t width, const float* dy, float* db) {
  if (db == nullptr) return;
  add_column_sums("bias_backward", n, width, BiasGradientTerm{width, dy}, db);
}

}  // namespace eaglet::cuda
