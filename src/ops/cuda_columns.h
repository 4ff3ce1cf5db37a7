#pragma once

// For .cu files only: sums over the rows of a matrix, one for each column, in a fixed order.

#include <algorithm>
#include <cstdint>

#include "device/cuda_device.h"

namespace eaglet::cuda {

// A block sums kColumns columns over the rows of one part, kRowsAtOnce rows at a time.
inline constexpr int kColumns = 32, kRowsAtOnce = 8;

/// partial [parts, width] = sums over each part's rows of term(row, column). Grid: column blocks x parts.
template <class Term>
__global__ void sum_columns_by_part(std::int64_t n, std::int64_t width, Term term, float* partial) {
  EAGLET_SHARED_ARRAY(float, sums, kColumns* kRowsAtOnce);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  const std::int64_t parts = gridDim.y, part = blockIdx.y;
  const std::int64_t begin = n * part / parts, end = n * (part + 1) / parts;
  float sum = 0;
  if (column < width)
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kRowsAtOnce) sum += term(row, column);
  sums[threadIdx.y * kColumns + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int y = 1; y < kRowsAtOnce; ++y) sum += sums[y * kColumns + threadIdx.x];
  partial[part * width + column] = sum;
}

/// to [width] += partial [parts, width]
static __global__ void add_parts(std::int64_t parts, std::int64_t width, const float* partial, float* to) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= width) return;
  float sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += partial[part * width + column];
  to[column] += sum;
}

/// to [width] += sums over n rows of term(row, column). Rows are cut into parts so that few columns occupy
/// the device too; the cut depends on n and width only.
template <class Term>
void add_column_sums(const char* name, std::int64_t n, std::int64_t width, const Term& term, float* to) {
  constexpr std::int64_t kBlocksWanted = 512, kLeastRows = 64, kMostParts = 512;
  if (n == 0 || width == 0) return;
  const unsigned across = blocks_for(width, kColumns);
  const std::int64_t parts =
      std::clamp<std::int64_t>(std::min(kBlocksWanted / across, n / kLeastRows), 1, kMostParts);
  auto* partial = static_cast<float*>(op_scratch(static_cast<std::uint64_t>(4 * parts * width)));
  if (partial == nullptr) return;
  launch(name, sum_columns_by_part<Term>, dim3(across, static_cast<unsigned>(parts)),
         dim3(kColumns, kRowsAtOnce), n, width, term, partial);
  launch(name, add_parts, dim3(blocks_for(width, 128)), dim3(128), parts, width, partial, to);
}

}  // namespace eaglet::cuda
