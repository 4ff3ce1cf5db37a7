#pragma once

#include <cstdint>

namespace eaglet {

/// Attention of a new row of a sequence over all the rows that generation kept of it
/// (docs/math/attention.md). One kv head at a time: its keys lie turned, in blocks of 64 rows
/// [rows/64][D][64], so that the scores of 64 keys are sums of whole vectors; its values lie as rows
/// [rows][D]. Both fp32 or both bf16.
constexpr std::int64_t kCachedBlockRows = 64;

struct CachedHead {
  bool bf16 = false;
  std::int64_t head_dim = 0;
  void* keys = nullptr;    // room for a multiple of 64 rows
  void* values = nullptr;  // the same
};

/// Row `row` of the head becomes key [D] and value [D], rounded to the nearest when it is bf16.
void store_cached_row(const CachedHead& head, std::int64_t row, const float* key, const float* value);

/// Floats of scratch for cached_attention() over at most `rows` rows.
std::int64_t cached_attention_scratch_floats(std::int64_t group, std::int64_t rows);

/// out [group, D] = softmax(queries [group, D] K^T / sqrt(D)) V over rows [begin, end) of the head, of the
/// `group` query heads that share it. end > begin. On the calling thread; sums run in a fixed order, whatever
/// stands beside. Reference: attention_ref.h.
void cached_attention(const CachedHead& head, std::int64_t group, std::int64_t begin, std::int64_t end,
                      const float* queries, float* out, float* scratch);

}  // namespace eaglet
