#include "target/kv_cache.h"

#include <algorithm>

#include "device/threads.h"
#include "ops/joined_rows.h"

namespace eaglet {
namespace {

std::int64_t kv_heads_of(const TargetConfig& c) {
  return c.latent.kv_rank > 0 ? c.num_heads : c.num_kv_heads;
}
// Latent attention: what latent_attention_layer() makes of the narrow row, keys and values of one width.
std::int64_t head_dim_of(const TargetConfig& c) {
  if (c.latent.kv_rank == 0) return c.head_dim;
  return std::max(c.latent.nope_dim + c.latent.rope_dim, c.latent.value_dim);
}
HeadCacheShape shape_of(const TargetConfig& c, bool bf16) {
  return {c.num_layers, kv_heads_of(c), head_dim_of(c), bf16};
}

}  // namespace

SequenceCache::SequenceCache(const TargetConfig& config, bool bf16, std::int64_t rows)
    : HeadCache(shape_of(config, bf16), rows) {}

std::uint64_t SequenceCache::bytes(const TargetConfig& config, bool bf16, std::int64_t rows) {
  return HeadCache::bytes(shape_of(config, bf16), rows);
}

namespace {

// What one thread works on: a sequence's kv head.
struct Item {
  const CachedRows* rows;
  std::int64_t kv_head;
};

// Long ones first, so that no thread is left with one.
std::vector<Item> items_of(const AttentionShape& shape, const StepCaches& step) {
  std::vector<Item> items;
  for (const CachedRows& rows : step.sequences)
    for (std::int64_t h = 0; h < shape.num_kv_heads; ++h) items.push_back({&rows, h});
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.rows->cache->length() > b.rows->cache->length();
  });
  return items;
}

void store(const AttentionShape& shape, const Item& item, const CachedHead& head, const LayerScratch& s) {
  const std::int64_t width = shape.num_kv_heads * shape.head_dim;
  for (std::int64_t r = 0; r < item.rows->rows; ++r) {
    const std::int64_t from = (item.rows->first_row + r) * width + item.kv_head * shape.head_dim;
    store_cached_row(head, item.rows->cache->length() + r, s.k.data() + from, s.v.data() + from);
  }
}

void attend(const AttentionShape& shape, const Item& item, const CachedHead& head, LayerScratch* s,
            float* scratch) {
  const std::int64_t group = shape.num_heads / shape.num_kv_heads, past = item.rows->cache->length();
  for (std::int64_t r = 0; r < item.rows->rows; ++r) {
    const std::int64_t end = past + r + 1,
                       begin = shape.window > 0 ? std::max<std::int64_t>(0, end - shape.window) : 0;
    const std::int64_t at =
        ((item.rows->first_row + r) * shape.num_heads + item.kv_head * group) * shape.head_dim;
    cached_attention(head, group, begin, end, s->q.data() + at, s->attended.data() + at, scratch);
  }
}

}  // namespace

void attend_over_caches(const AttentionShape& shape, const DocumentChunk& chunk, LayerScratch* s) {
  const StepCaches& step = *chunk.caches;
  if (!chunk.spans.empty()) attend_within_documents(shape, chunk, s);
  const std::vector<Item> items = items_of(shape, step);
  std::int64_t longest = 0;
  for (const CachedRows& rows : step.sequences) longest = std::max(longest, rows.cache->length() + rows.rows);
  const std::int64_t floats = cached_attention_scratch_floats(shape.head_dim, shape.num_heads / shape.num_kv_heads, longest);
  room(&s->attended, chunk.rows * shape.num_heads * shape.head_dim);
  float* scratch = room(&s->attention, num_threads() * floats);
  parallel_items(static_cast<std::int64_t>(items.size()), [&](std::int64_t i, int thread) {
    const Item& item = items[static_cast<std::size_t>(i)];
    const CachedHead head = item.rows->cache->head(step.layer, item.kv_head);
    store(shape, item, head, *s);
    if (item.rows->cache->length() > 0) attend(shape, item, head, s, scratch + thread * floats);
  });
}

}  // namespace eaglet
