#include "device/cuda_device.h"
#include "ops/cuda_ops.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

// fp32 product first, as torch does; the angle then goes through sin and cos in double, as on the host.
__global__ void angles(std::int64_t n, const std::int32_t* positions, std::int64_t half,
                       const float* inv_freq, float scaling, float* cosines, float* sines) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n * half;
       i += stride) {
    const float angle = static_cast<float>(positions[i / half]) * inv_freq[i % half];
    double sine = 0, cosine = 0;
    sincos(static_cast<double>(angle), &sine, &cosine);
    cosines[i] = static_cast<float>(cosine) * scaling;
    sines[i] = static_cast<float>(sine) * scaling;
  }
}

// One block a row at a time; a thread turns pairs (x_j, x_{j+half}) of any head.
__global__ void rotate(std::int64_t n, int heads, int half, const float* cosines, const float* sines,
                       float direction, float* x) {
  for (std::int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    float* of_row = x + row * heads * half * 2;
    for (int pair = static_cast<int>(threadIdx.x); pair < heads * half; pair += kThreads) {
      const int head = pair / half, j = pair % half;
      const float c = cosines[row * half + j], s = direction * sines[row * half + j];
      float *a = of_row + head * 2 * half + j, *b = a + half;
      const float low = *a, high = *b;
      *a = low * c - high * s;
      *b = high * c + low * s;
    }
  }
}

void launch_rotate(const char* name, std::int64_t n, std::int64_t heads, std::int64_t half,
                   const float* cosines, const float* sines, float direction, float* x) {
  if (n == 0) return;
  launch(name, rotate, dim3(blocks_for(n, 1)), dim3(kThreads), n, static_cast<int>(heads),
         static_cast<int>(half), cosines, sines, direction, x);
}

}  // namespace

void rope_angles(std::int64_t n, const std::int32_t* positions, std::int64_t half, const float* inv_freq,
                 float scaling, float* cos, float* sin) {
  if (n * half == 0) return;
  launch("rope_angles", angles, dim3(blocks_for(n * half, kThreads)), dim3(kThreads), n, positions, half,
         inv_freq, scaling, cos, sin);
}

void rope_rotate(std::int64_t n, std::int64_t heads, std::int64_t half, const float* cos, const float* sin,
                 float* x) {
  launch_rotate("rope_rotate", n, heads, half, cos, sin, 1.0f, x);
}

void rope_rotate_backward(std::int64_t n, std::int64_t heads, std::int64_t half, const float* cos,
                          const float* sin, float* dx) {
  launch_rotate("rope_rotate_backward", n, heads, half, cos, sin, -1.0f, dx);
}

}  // namespace eaglet::cuda
