#include "device/cuda_device.h"
#include "ops/cuda_ops.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

__device__ std::int64_t row_at(const std::int32_t* index, std::int64_t i) {
  return index != nullptr ? index[i] : i;
}

__global__ void gather(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                       float* to) {
  for (std::int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const std::int64_t source = row_at(index, row);
    for (std::int64_t j = threadIdx.x; j < width; j += kThreads)
      to[row * width + j] = from[source * width + j];
  }
}

// The rows of the index are distinct, so no two blocks meet.
__global__ void scatter_add(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                            float* to) {
  for (std::int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const std::int64_t target = row_at(index, row);
    for (std::int64_t j = threadIdx.x; j < width; j += kThreads)
      to[target * width + j] += from[row * width + j];
  }
}

// A thread owns a column and walks down the rows, so that rows which meet in one are added in their order:
// atomics would give other bits every time. Slow where few columns meet many rows; only trained embeddings
// come here.
__global__ void scatter_add_in_order(std::int64_t n, std::int64_t width, const float* from,
                                     const std::int32_t* index, float* to) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= width) return;
  for (std::int64_t i = 0; i < n; ++i) to[index[i] * width + column] += from[i * width + column];
}

}  // namespace

void gather_rows(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                 float* to) {
  if (n == 0) return;
  launch("gather_rows", gather, dim3(blocks_for(n, 1)), dim3(kThreads), n, width, from, index, to);
}

void scatter_add_rows(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                      float* to) {
  if (n == 0) return;
  launch("scatter_add_rows", scatter_add, dim3(blocks_for(n, 1)), dim3(kThreads), n, width, from, index, to);
}

void scatter_add_repeated_rows(std::int64_t n, std::int64_t width, const float* from,
                               const std::int32_t* index, float* to) {
  if (n == 0) return;
  launch("scatter_add_repeated_rows", scatter_add_in_order, dim3(blocks_for(width, kWarp)), dim3(kWarp), n,
         width, from, index, to);
}

void zero_rows(std::int64_t n, std::int64_t width, float* to) {
  if (n * width == 0) return;
  note(cudaMemsetAsync(to, 0, static_cast<std::size_t>(n * width) * sizeof(float), stream()), "zero_rows");
}

}  // namespace eaglet::cuda
