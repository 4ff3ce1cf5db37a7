#include "device/cuda_device.h"
#include "ops/cuda_columns.h"
#include "ops/cuda_ops.h"

namespace eaglet::cuda {
namespace {

// A row is the work of a warp, eight rows a block, or of a whole block when it is wide.
constexpr int kBlockThreads = 256;
constexpr std::int64_t kWidestForWarp = 512;

template <int kThreads>
__device__ float row_sum(float value, float* partial) {
  if constexpr (kThreads == kWarp)
    return warp_sum(value);
  else
    return block_sum<kThreads>(value, partial);
}

template <int kThreads>
__global__ void rms_norm_rows(std::int64_t n, std::int64_t width, const float* x, std::int64_t ldx,
                              const float* w, double eps, float* y, std::int64_t ldy, float* inv) {
  EAGLET_SHARED_ARRAY(float, partial, kThreads / kWarp);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  for (std::int64_t row = first; row < n; row += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    const float* from = x + row * ldx;
    float sum = 0;
    for (std::int64_t j = threadIdx.x; j < width; j += kThreads) sum += from[j] * from[j];
    sum = row_sum<kThreads>(sum, partial);
    const float scale =
        static_cast<float>(1.0 / sqrt(static_cast<double>(sum) / static_cast<double>(width) + eps));
    if (threadIdx.x == 0) inv[row] = scale;
    for (std::int64_t j = threadIdx.x; j < width; j += kThreads) y[row * ldy + j] = scale * from[j] * w[j];
  }
}

// dx may be dy: a thread writes what it alone read, after the row's sum.
template <int kThreads>
__global__ void rms_norm_rows_backward(std::int64_t n, std::int64_t width, const float* x, const float* w,
                                       const float* inv, const float* dy, bool accumulate, float* dx) {
  EAGLET_SHARED_ARRAY(float, partial, kThreads / kWarp);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  for (std::int64_t row = first; row < n; row += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    const std::int64_t at = row * width;
    float sum = 0;
    for (std::int64_t j = threadIdx.x; j < width; j += kThreads) sum += dy[at + j] * x[at + j] * w[j];
    const float mean = row_sum<kThreads>(sum, partial) / static_cast<float>(width);
    const float scale = inv[row], pull = scale * scale * scale * mean;
    for (std::int64_t j = threadIdx.x; j < width; j += kThreads) {
      const float d = scale * dy[at + j] * w[j] - pull * x[at + j];
      dx[at + j] = accumulate ? dx[at + j] + d : d;
    }
  }
}

struct WeightGradientTerm {
  std::int64_t ldx, lddy;
  const float *x, *inv, *dy;
  __device__ float operator()(std::int64_t row, std::int64_t column) const {
    return inv[row] * dy[row * lddy + column] * x[row * ldx + column];
  }
};

dim3 grid_of(std::int64_t n, std::int64_t width) {
  return dim3(blocks_for(n, width <= kWidestForWarp ? kBlockThreads / kWarp : 1));
}
dim3 block_of(std::int64_t width) {
  return width <= kWidestForWarp ? dim3(kWarp, kBlockThreads / kWarp) : dim3(kBlockThreads);
}

}  // namespace

void rms_norm(std::int64_t n, std::int64_t width, const float* x, std::int64_t ldx, const float* w,
              double eps, float* y, std::int64_t ldy, float* inv) {
  if (n == 0) return;
  launch("rms_norm", width <= kWidestForWarp ? rms_norm_rows<kWarp> : rms_norm_rows<kBlockThreads>,
         grid_of(n, width), block_of(width), n, width, x, ldx, w, eps, y, ldy, inv);
}

void rms_norm_backward(std::int64_t n, std::int64_t width, const float* x, const float* w, const float* inv,
                       const float* dy, bool accumulate, float* dx, float* dw, float*) {
  if (n == 0) return;
  // First dw: dx may overwrite dy.
  if (dw != nullptr)
    add_column_sums("rms_norm_backward: dw", n, width, WeightGradientTerm{width, width, x, inv, dy}, dw);
  if (dx == nullptr) return;
  launch("rms_norm_backward",
         width <= kWidestForWarp ? rms_norm_rows_backward<kWarp> : rms_norm_rows_backward<kBlockThreads>,
         grid_of(n, width), block_of(width), n, width, x, w, inv, dy, accumulate, dx);
}

void rms_norm_weight_backward(std::int64_t n, std::int64_t width, const float* x, std::int64_t ldx,
                              const float* inv, const float* dy, std::int64_t lddy, float* dw) {
  add_column_sums("rms_norm_weight_backward", n, width, WeightGradientTerm{ldx, lddy, x, inv, dy}, dw);
}

}  // namespace eaglet::cuda
