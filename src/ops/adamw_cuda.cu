#include <cmath>

#include "device/cuda_device.h"
#include "device/cuda_op_times.h"
#include "ops/adamw_scalars.h"
#include "ops/cuda_ops.h"
#include "ops/cuda_square_sums.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kNormBlocks = 1024;
static_assert(kNormBlocks * sizeof(double) <= kHostScratchBytes);

// All tensors of a contiguous block of parameters at once: nothing here knows where one ends.
__global__ void adamw_update(std::int64_t n, float* w, const float* g, float* m, float* v, AdamwScalars s) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    const float gradient = g[i] * s.gradient_scale;
    const float first = s.beta1 * m[i] + s.one_minus_beta1 * gradient;
    const float second = s.beta2 * v[i] + s.one_minus_beta2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    w[i] = w[i] * s.keep - s.rate * (first / (sqrtf(second) * s.inverse_root_correction + s.eps));
  }
}

// One sum a block, in double; the grid is always the same, so is the order.
__global__ void sum_squares(std::int64_t n, const float* values, double* sums) {
  EAGLET_SHARED_ARRAY(double, partial, kThreads / kWarp);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  double sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  sum = block_sum<kThreads>(sum, partial);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

void adamw(std::int64_t n, float* weights, const float* gradients, float* first_moment, float* second_moment,
           double gradient_scale, double learning_rate, std::int64_t update, const AdamwOptions& options) {
  if (n == 0) return;
  launch("adamw", adamw_update, dim3(blocks_for(n, kThreads)), dim3(kThreads), n, weights, gradients,
         first_moment, second_moment, adamw_scalars(gradient_scale, learning_rate, update, options));
}

SquareSums square_sums(std::int64_t n, const float* values) {
  SquareSums sums;
  const unsigned blocks = blocks_for(n, kThreads, kNormBlocks);
  if (blocks == 0) return sums;
  sums.of_part = static_cast<double*>(op_scratch(kNormBlocks * sizeof(double)));
  if (sums.of_part == nullptr) return sums;
  sums.count = blocks;
  launch("l2_norm", sum_squares, dim3(blocks), dim3(kThreads), n, values, sums.of_part);
  return sums;
}

// Waits for the device: the caller needs the number now.
double l2_norm(std::int64_t n, const float* values) {
  if (n == 0) return 0;
  auto* on_host = static_cast<double*>(host_scratch());
  SquareSums sums;
  {
    const TimedOp timed(OpGroup::kOptimizer);
    sums = square_sums(n, values);
    if (sums.count == 0) return std::nan("");
    note(
        cudaMemcpyAsync(on_host, sums.of_part, sums.count * sizeof(double), cudaMemcpyDeviceToHost, stream()),
        "l2_norm");
  }
  const cudaError_t error = cudaStreamSynchronize(stream());
  note(error, "l2_norm");
  if (error != cudaSuccess) return std::nan("");
  double total = 0;
  for (unsigned b = 0; b < sums.count; ++b) total += on_host[b];
  return std::sqrt(total);
}

}  // namespace eaglet::cuda
