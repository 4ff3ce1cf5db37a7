#pragma once

#include <cstdint>
#include <vector>

#include "ops/cached_attention.h"
#include "target/layer_forward.h"
#include "target/target_config.h"

namespace eaglet {

/// Keys and values of one sequence in all layers, for generation. Memory is given by the system page by page
/// as rows come; bytes() is what all rows will take.
class SequenceCache {
 public:
  /// Room for `rows` rows; bf16 takes half of what fp32 takes.
  SequenceCache(const TargetConfig& config, bool bf16, std::int64_t rows);
  static std::uint64_t bytes(const TargetConfig& config, bool bf16, std::int64_t rows);

  std::int64_t length() const { return length_; }
  std::int64_t room() const { return rows_; }
  CachedHead head(std::int64_t layer, std::int64_t kv_head);
  /// `rows` more rows are there, in all layers.
  void advance(std::int64_t rows) { length_ += rows; }
  /// Forgets rows from `length` on: drafted tokens that were refused.
  void cut(std::int64_t length) { length_ = length; }

 private:
  std::int64_t kv_heads_, head_dim_, rows_, length_ = 0;
  bool bf16_;
  std::vector<std::uint16_t> narrow_;
  std::vector<float> wide_;
};

/// Rows [first_row, first_row + rows) of a chunk are the next of the cache's sequence.
struct CachedRows {
  SequenceCache* cache = nullptr;
  std::int64_t first_row = 0, rows = 0;
};

/// The sequences of a chunk, and the layer that it is in.
struct StepCaches {
  std::vector<CachedRows> sequences;
  std::int64_t layer = 0;
};

/// scratch->attended from scratch->q, scratch->k, scratch->v: keys and values go into the caches; a first row
/// sees its own chunk (chunk.spans holds those sequences), later ones what their cache holds and themselves.
void attend_over_caches(const AttentionShape& shape, const DocumentChunk& chunk, LayerScratch* scratch);

}  // namespace eaglet
