#pragma once

// For .cu files only: tiles of bf16 rows for tensor cores, and attention's operands as they feed them.

#include <cstdint>

#include "device/cuda_tensor_core.h"
#include "ops/attention_cuda.h"

namespace eaglet::cuda {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

/// First and last step-0 key that a row sees, counted from the call's first key. Both ascend with the rows.
struct SeenKeys {
  std::int32_t first, last;
};
/// What backward needs of a row of one kv head; log_sum_exp times log2(e).
struct alignas(16) RowFacts {
  float log2_sum, delta;
  SeenKeys seen;
};

/// Operands rounded to bf16, by kv head, head_dim filled up with zeros to the width of the kernel's tiles:
///   queries, d_out [Kv, rows, width]   keys, values [Kv, keys, width]   seen [rows]   facts [Kv, rows]
struct Rounded {
  int rows = 0, keys = 0;
  std::int64_t first_key = 0;  // in the step-0 arrays
  std::uint16_t *queries = nullptr, *keys0 = nullptr, *values0 = nullptr, *d_out = nullptr;
  SeenKeys* seen = nullptr;
  RowFacts* facts = nullptr;
};
/// Of a call, in the op's memory, which it takes; with `backward` also d_out, facts and b->delta. Both of its
/// arguments are filled. False when the device has no memory left.
bool round_operands(const AttentionShape& shape, const AttentionInputs& in, int width, bool backward, Call* c,
                    Rounded* r, Backward* b);

/// Width of the tiles that take such heads.
inline int tile_width(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

// A tile in shared memory: rows of kWidth numbers in chunks of 16 bytes. Chunk c of row r lies at c ^ (r %
// 8), so that neither 8 rows of one chunk nor 8 chunks of one row meet in a bank.
inline constexpr int kChunk = 8;
template <int kWidth>
__device__ __forceinline__ std::uint16_t* chunk_at(std::uint16_t* tile, int row, int chunk) {
  return tile + row * kWidth + (chunk ^ (row & 7)) * kChunk;
}

/// Begins to copy rows [first, first + kRows) of `from`, whose row is kWidth numbers; zeros from `end` on.
template <int kWidth, int kRows, int kThreads>
__device__ __forceinline__ void fetch_rows(const std::uint16_t* from, int first, int end,
                                           std::uint16_t* tile) {
  constexpr int kChunks = kWidth / kChunk;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  EAGLET_UNROLL_TWO
  for (int row = static_cast<int>(threadIdx.x) / kChunks; row < kRows; row += kThreads / kChunks) {
    const bool wanted = first + row < end;
    const std::int64_t at = wanted ? static_cast<std::int64_t>(first + row) * kWidth + chunk * kChunk : 0;
    copy_16_async(chunk_at<kWidth>(tile, row, chunk), from + at, wanted);
  }
}

// Operands of multiply_tile() out of tiles; columns in units of 16.
/// a: rows [row, row + 16), columns [16 part, 16 part + 16).
template <int kWidth>
__device__ __forceinline__ void load_left(std::uint16_t* tile, int row, int part, std::uint32_t (&a)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  load_matrices(chunk_at<kWidth>(tile, row + lane % 16, 2 * part + lane / 16), a);
}
/// b of the product with the turned tile, twice 8 columns: its columns are rows [row, row + 16) of the tile.
/// b[0], b[1] are of the first 8, b[2], b[3] of the next.
template <int kWidth>
__device__ __forceinline__ void load_right_turned(std::uint16_t* tile, int row, int part,
                                                  std::uint32_t (&b)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  load_matrices(chunk_at<kWidth>(tile, row + lane % 8 + lane / 16 * 8, 2 * part + lane / 8 % 2), b);
}
/// b of the product with the tile as it lies: rows [row, row + 16), twice 8 of its columns.
template <int kWidth>
__device__ __forceinline__ void load_right(std::uint16_t* tile, int row, int part, std::uint32_t (&b)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  load_matrices_turned(chunk_at<kWidth>(tile, row + lane % 16, 2 * part + lane / 16), b);
}

/// Two neighbouring tiles of a result [16, 8 each] as the left operand [16, 16] of the next product: no lane
/// needs anything of another.
__device__ __forceinline__ void result_as_left(const float (&c0)[4], const float (&c1)[4],
                                               std::uint32_t (&a)[4]) {
  a[0] = pack_bf16(c0[0], c0[1]);
  a[1] = pack_bf16(c0[2], c0[3]);
  a[2] = pack_bf16(c1[0], c1[1]);
  a[3] = pack_bf16(c1[2], c1[3]);
}

// A row of a result lies in the four lanes of a quad.
__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(kWholeWarp, value, 1);
  return value + __shfl_xor_sync(kWholeWarp, value, 2);
}
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 1));
  return fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 2));
}

/// Two numbers of a row of fp32, zero beyond head_dim. `even`: rows are aligned to two numbers.
struct Two {
  float low, high;
};
__device__ __forceinline__ Two two_at(const float* row, int column, int head_dim, bool even) {
  if (column >= head_dim) return {0, 0};
  if (even) {
    const float2 both = *reinterpret_cast<const float2*>(row + column);
    return {both.x, both.y};
  }
  return {row[column], column + 1 < head_dim ? row[column + 1] : 0.0f};
}
__device__ __forceinline__ void put_two(float* row, int column, int head_dim, bool even, float low,
                                        float high) {
  if (column >= head_dim) return;
  if (even) {
    float2 both;
    both.x = low;
    both.y = high;
    *reinterpret_cast<float2*>(row + column) = both;
    return;
  }
  row[column] = low;
  if (column + 1 < head_dim) row[column + 1] = high;
}

}  // namespace eaglet::cuda
