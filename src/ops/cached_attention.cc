#include "ops/cached_attention.h"

#include <algorithm>
#include <cmath>

#include "device/bf16_rounding.h"
#include "ops/vector_math.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

std::int64_t blocks_of(std::int64_t rows) {
  return (rows + kCachedBlockRows - 1) / kCachedBlockRows;
}

/// A block's keys [D, 64] or values [64, D] as fp32: where they lie, or widened into `tile`.
const float* widened(const CachedHead& head, const void* all, std::int64_t block, float* tile) {
  const std::int64_t n = head.head_dim * kCachedBlockRows;
  if (!head.bf16) return static_cast<const float*>(all) + block * n;
  vwiden_bf16(static_cast<const std::uint16_t*>(all) + block * n, n, tile);
  return tile;
}

}  // namespace

void store_cached_row(const CachedHead& head, std::int64_t row, const float* key, const float* value) {
  const std::int64_t d = head.head_dim, block = row / kCachedBlockRows, lane = row % kCachedBlockRows;
  const std::int64_t first = block * d * kCachedBlockRows + lane;
  if (!head.bf16) {
    float* keys = static_cast<float*>(head.keys) + first;
    for (std::int64_t i = 0; i < d; ++i) keys[i * kCachedBlockRows] = key[i];
    std::copy_n(value, d, static_cast<float*>(head.values) + row * d);
    return;
  }
  std::uint16_t* keys = static_cast<std::uint16_t*>(head.keys) + first;
  for (std::int64_t i = 0; i < d; ++i) keys[i * kCachedBlockRows] = f32_to_bf16(key[i]);
  round_row_to_bf16(d, value, static_cast<std::uint16_t*>(head.values) + row * d);
}

std::int64_t cached_attention_scratch_floats(std::int64_t group, std::int64_t head_dim, std::int64_t rows) {
  return kCachedBlockRows * (head_dim + group * blocks_of(rows));
}

void cached_attention(const CachedHead& head, std::int64_t group, std::int64_t begin, std::int64_t end,
                      const float* queries, float* out, float* scratch) {
  const std::int64_t d = head.head_dim, first_block = begin / kCachedBlockRows, last_block = blocks_of(end);
  const std::int64_t width = (last_block - first_block) * kCachedBlockRows;  // of a query head's scores
  const std::int64_t skipped = begin - first_block * kCachedBlockRows, seen = end - begin;
  float *tile = scratch, *scores = scratch + d * kCachedBlockRows;
  std::fill_n(scores, group * width, 0.0f);
  for (std::int64_t block = first_block; block < last_block; ++block) {
    const float* keys = widened(head, head.keys, block, tile);
    float* to = scores + (block - first_block) * kCachedBlockRows;
    for (std::int64_t g = 0; g < group; ++g)
      vadd_rows(d, queries + g * d, keys, kCachedBlockRows, to + g * width);
  }
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  for (std::int64_t g = 0; g < group; ++g) {
    float* row = scores + g * width;
    const float largest = scale * vmax(row + skipped, seen);
    const float sum = vexp_sum(row + skipped, seen, scale, largest, row + skipped);
    vaxpby(0.0f, row, 1.0f / sum, seen, row + skipped);
  }
  std::fill_n(out, group * d, 0.0f);
  for (std::int64_t block = first_block; block < last_block; ++block) {
    const float* values = widened(head, head.values, block, tile);
    const std::int64_t from = std::max(begin, block * kCachedBlockRows),
                       rows = std::min(end, (block + 1) * kCachedBlockRows) - from;
    const float* weights = scores + from - first_block * kCachedBlockRows;
    for (std::int64_t g = 0; g < group; ++g)
      vadd_rows(rows, weights + g * width, values + (from - block * kCachedBlockRows) * d, d, out + g * d);
  }
}

}  // namespace eaglet
