#pragma once

#include <cstdint>
#include <vector>

#include "ops/head_cache.h"
#include "target/layer_forward.h"
#include "target/target_config.h"

namespace eaglet {

/// The target's keys and values of one sequence.
class SequenceCache : public HeadCache {
 public:
  /// Room for `rows` rows.
  SequenceCache(const TargetConfig& config, bool bf16, std::int64_t rows);
  static std::uint64_t bytes(const TargetConfig& config, bool bf16, std::int64_t rows);
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
