#pragma once

#include <cstdint>

namespace eaglet {

/// Attention of a new row of a sequence over all the rows that generation kept of it
/// (docs/math/attention.md). One kv head at a time. Both keys and values are fp32, or both bf16:
/// - fp32: keys lie turned, in blocks of 64 rows [rows/64][D][64], so that the scores of 64 keys are sums of
///   whole vectors; values lie as rows [rows][D];
/// - bf16: the same in pairs, which processors multiply at once (bf16_pairs.h): keys [rows/64][D/2][64][2],
///   two numbers of a key side by side, an odd D filled up with a zero; values [rows/2][D][2], a number of
///   two rows.
constexpr std::int64_t kCachedBlockRows = 64;

struct CachedHead {
  bool bf16 = false;
  std::int64_t head_dim = 0;
  void* keys = nullptr;    // cached_width() numbers a row, room for a multiple of 64 rows
  void* values = nullptr;  // the same
};

/// Numbers of a key or a value as they lie there.
std::int64_t cached_width(bool bf16, std::int64_t head_dim);

/// Row `row` of the head becomes key [D] and value [D], rounded to the nearest when it is bf16.
void store_cached_row(const CachedHead& head, std::int64_t row, const float* key, const float* value);

/// Floats of scratch for cached_attention() over at most `rows` rows.
std::int64_t cached_attention_scratch_floats(std::int64_t head_dim, std::int64_t group, std::int64_t rows);

/// out [group, D] = softmax(queries [group, D] K^T / sqrt(D)) V over rows [begin, end) of the head, of the
/// `group` query heads that share it. end > begin. With bf16, queries and exponentials are rounded to bf16 as
/// the operands of products are; sums and the softmax are fp32. On the calling thread; sums run in a fixed
/// order, whatever stands beside. Reference: attention_ref.h.
void cached_attention(const CachedHead& head, std::int64_t group, std::int64_t begin, std::int64_t end,
                      const float* queries, float* out, float* scratch);

}  // namespace eaglet
