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

/// y [group, n] += w [group, k] * the rows [k, n] that begin `at` elements into keys or values.
void add_rows(const CachedHead& head, std::int64_t group, std::int64_t k, const float* w, std::int64_t ldw,
              const void* all, std::int64_t at, std::int64_t n, float* y, std::int64_t ldy) {
  if (head.bf16)
    vadd_rows(group, k, w, ldw, static_cast<const std::uint16_t*>(all) + at, n, y, ldy);
  else
    vadd_rows(group, k, w, ldw, static_cast<const float*>(all) + at, n, y, ldy);
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

std::int64_t cached_attention_scratch_floats(std::int64_t group, std::int64_t rows) {
  return kCachedBlockRows * group * blocks_of(rows);
}

void cached_attention(const CachedHead& head, std::int64_t group, std::int64_t begin, std::int64_t end,
                      const float* queries, float* out, float* scratch) {
  const std::int64_t d = head.head_dim, first_block = begin / kCachedBlockRows, last_block = blocks_of(end);
  const std::int64_t width = (last_block - first_block) * kCachedBlockRows;  // of a query head's scores
  const std::int64_t skipped = begin - first_block * kCachedBlockRows, seen = end - begin;
  float* scores = scratch;
  std::fill_n(scores, group * width, 0.0f);
  for (std::int64_t block = first_block; block < last_block; ++block)
    add_rows(head, group, d, queries, d, head.keys, block * d * kCachedBlockRows, kCachedBlockRows,
             scores + (block - first_block) * kCachedBlockRows, width);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  float* weights = scores + skipped;
  for (std::int64_t g = 0; g < group; ++g) {
    float* row = weights + g * width;
    const float largest = scale * vmax(row, seen);
    const float sum = vexp_sum(row, seen, scale, largest, row);
    vaxpby(0.0f, row, 1.0f / sum, seen, row);
  }
  std::fill_n(out, group * d, 0.0f);
  add_rows(head, group, seen, weights, width, head.values, begin * d, d, out, d);
}

}  // namespace eaglet
