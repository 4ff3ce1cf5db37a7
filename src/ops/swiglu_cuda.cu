#include "device/cuda_device.h"
#include "ops/cuda_ops.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

// exp of a large -g is infinite and its reciprocal 0, the limit.
__device__ float sigmoid(float g) {
  return 1.0f / (1.0f + expf(-g));
}

__global__ void swiglu_forward(std::int64_t n, const float* gate, const float* up, float* act) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    act[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

__global__ void swiglu_gradients(std::int64_t n, float* gate, float* up, float* d_act) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    const float g = gate[i], u = up[i], dy = d_act[i], s = sigmoid(g), silu = g * s;
    gate[i] = dy * u * s * (1.0f + g * (1.0f - s));
    up[i] = dy * silu;
    d_act[i] = silu * u;
  }
}

}  // namespace

void swiglu(std::int64_t n, std::int64_t width, const float* gate, const float* up, float* act) {
  if (n * width == 0) return;
  launch("swiglu", swiglu_forward, dim3(blocks_for(n * width, kThreads)), dim3(kThreads), n * width, gate, up,
         act);
}

void swiglu_backward(std::int64_t n, std::int64_t width, float* gate, float* up, float* d_act) {
  if (n * width == 0) return;
  launch("swiglu_backward", swiglu_gradients, dim3(blocks_for(n * width, kThreads)), dim3(kThreads),
         n * width, gate, up, d_act);
}

}  // namespace eaglet::cuda
