#include "ops/cached_attention.h"

#include <algorithm>
#include <cmath>

#include "device/bf16_rounding.h"
#include "ops/bf16_pairs.h"
#include "ops/vector_math.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

constexpr std::int64_t kKeysAtOnce = 16;  // of a block's 64, those that hold no key yet are left out

std::int64_t blocks_of(std::int64_t rows) {
  return (rows + kCachedBlockRows - 1) / kCachedBlockRows;
}
std::int64_t even(std::int64_t n) {
  return (n + 1) / 2 * 2;
}

// The rows that a call sees, and where their scores lie.
struct SeenRows {
  std::int64_t begin, end, first_block;
  std::int64_t last_block() const { return blocks_of(end); }
  std::int64_t width() const {
    return (last_block() - first_block) * kCachedBlockRows;
  }  // of a query's scores
  std::int64_t skipped() const { return begin - first_block * kCachedBlockRows; }
  std::int64_t count() const { return end - begin; }
};

// scores [group, width] of whole blocks of keys; of the last one those in use, filled up to 16.
void score_f32(const CachedHead& head, std::int64_t group, const SeenRows& seen, const float* queries,
               float* scores) {
  const std::int64_t d = head.head_dim;
  for (std::int64_t block = seen.first_block; block < seen.last_block(); ++block)
    vadd_rows(group, d, queries, d, static_cast<const float*>(head.keys) + block * d * kCachedBlockRows,
              kCachedBlockRows, scores + (block - seen.first_block) * kCachedBlockRows, seen.width());
}

void score_bf16(const CachedHead& head, std::int64_t group, const SeenRows& seen, const float* queries,
                float* scores, std::uint16_t* rounded) {
  const std::int64_t d = head.head_dim, pairs = even(d) / 2;
  for (std::int64_t g = 0; g < group; ++g) {
    round_row_to_bf16(d, queries + g * d, rounded + g * 2 * pairs);
    if (d % 2 != 0) rounded[g * 2 * pairs + d] = 0;
  }
  const auto* keys = static_cast<const std::uint16_t*>(head.keys);
  for (std::int64_t block = seen.first_block; block < seen.last_block(); ++block) {
    const std::int64_t in_use = std::min(kCachedBlockRows, seen.end - block * kCachedBlockRows);
    add_bf16_pairs(group, pairs, rounded, pairs, keys + block * 2 * pairs * kCachedBlockRows,
                   kCachedBlockRows, (in_use + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce,
                   scores + (block - seen.first_block) * kCachedBlockRows, seen.width());
  }
}

// out = weights times the rows seen.
void sum_f32(const CachedHead& head, std::int64_t group, const SeenRows& seen, const float* weights,
             float* out) {
  const std::int64_t d = head.head_dim;
  vadd_rows(group, seen.count(), weights + seen.skipped(), seen.width(),
            static_cast<const float*>(head.values) + seen.begin * d, d, out, d);
}

// Rows go in pairs: one before the first or behind the last gets no weight.
void sum_bf16(const CachedHead& head, std::int64_t group, const SeenRows& seen, float* weights, float* out,
              std::uint16_t* rounded) {
  const std::int64_t d = head.head_dim, before = seen.begin % 2, rows = even(before + seen.count());
  for (std::int64_t g = 0; g < group; ++g) {
    float* row = weights + g * seen.width() + seen.skipped();
    if (before != 0) row[-1] = 0;
    if (seen.end % 2 != 0) row[seen.count()] = 0;
    round_row_to_bf16(rows, row - before, rounded + g * rows);
  }
  add_bf16_pairs(group, rows / 2, rounded, rows / 2,
                 static_cast<const std::uint16_t*>(head.values) + (seen.begin - before) * d, d, d, out, d);
}

}  // namespace

std::int64_t cached_width(bool bf16, std::int64_t head_dim) {
  return bf16 ? even(head_dim) : head_dim;
}

void store_cached_row(const CachedHead& head, std::int64_t row, const float* key, const float* value) {
  const std::int64_t d = head.head_dim, block = row / kCachedBlockRows, lane = row % kCachedBlockRows;
  const std::int64_t first = block * cached_width(head.bf16, d) * kCachedBlockRows;
  if (!head.bf16) {
    float* keys = static_cast<float*>(head.keys) + first + lane;
    for (std::int64_t i = 0; i < d; ++i) keys[i * kCachedBlockRows] = key[i];
    std::copy_n(value, d, static_cast<float*>(head.values) + row * d);
    return;
  }
  std::uint16_t* keys = static_cast<std::uint16_t*>(head.keys) + first + 2 * lane;
  for (std::int64_t i = 0; i < d; i += 2, keys += 2 * kCachedBlockRows) {
    keys[0] = f32_to_bf16(key[i]);
    keys[1] = i + 1 < d ? f32_to_bf16(key[i + 1]) : 0;
  }
  std::uint16_t* values = static_cast<std::uint16_t*>(head.values) + row / 2 * 2 * d + row % 2;
  for (std::int64_t i = 0; i < d; ++i) values[2 * i] = f32_to_bf16(value[i]);
}

std::int64_t cached_attention_scratch_floats(std::int64_t head_dim, std::int64_t group, std::int64_t rows) {
  const std::int64_t scores = kCachedBlockRows * group * blocks_of(rows);
  return scores + std::max(scores, group * even(head_dim)) / 2 + 1;  // and what is rounded of them
}

void cached_attention(const CachedHead& head, std::int64_t group, std::int64_t begin, std::int64_t end,
                      const float* queries, float* out, float* scratch) {
  const SeenRows seen = {begin, end, begin / kCachedBlockRows};
  float* scores = scratch;
  auto* rounded = reinterpret_cast<std::uint16_t*>(scratch + group * seen.width());
  std::fill_n(scores, group * seen.width(), 0.0f);
  if (head.bf16)
    score_bf16(head, group, seen, queries, scores, rounded);
  else
    score_f32(head, group, seen, queries, scores);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head.head_dim)));
  std::fill_n(out, group * head.head_dim, 0.0f);
  for (std::int64_t g = 0; g < group; ++g) {
    float* row = scores + g * seen.width() + seen.skipped();
    const float largest = scale * vmax(row, seen.count());
    const float sum = vexp_sum(row, seen.count(), scale, largest, row);
    vaxpby(0.0f, row, 1.0f / sum, seen.count(), row);
  }
  if (head.bf16)
    sum_bf16(head, group, seen, scores, out, rounded);
  else
    sum_f32(head, group, seen, scores, out);
}

}  // namespace eaglet
