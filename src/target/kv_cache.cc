#include "target/kv_cache.h"

#include <algorithm>

#include "device/threads.h"

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
std::int64_t whole_blocks(std::int64_t rows) {
  return (rows + kCachedBlockRows - 1) / kCachedBlockRows * kCachedBlockRows;
}
std::int64_t elements(const TargetConfig& c, std::int64_t rows) {
  return 2 * c.num_layers * kv_heads_of(c) * head_dim_of(c) * whole_blocks(rows);
}

}  // namespace

SequenceCache::SequenceCache(const TargetConfig& config, bool bf16, std::int64_t rows)
    : kv_heads_(kv_heads_of(config)), head_dim_(head_dim_of(config)), rows_(whole_blocks(rows)), bf16_(bf16) {
  const auto n = static_cast<std::size_t>(elements(config, rows));
  if (bf16)
    narrow_.resize(n);
  else
    wide_.resize(n);
}

std::uint64_t SequenceCache::bytes(const TargetConfig& config, bool bf16, std::int64_t rows) {
  return static_cast<std::uint64_t>(elements(config, rows)) * (bf16 ? 2 : 4);
}

CachedHead SequenceCache::head(std::int64_t layer, std::int64_t kv_head) {
  const std::int64_t part = rows_ * head_dim_, at = 2 * (layer * kv_heads_ + kv_head) * part;
  if (bf16_) return {true, head_dim_, narrow_.data() + at, narrow_.data() + at + part};
  return {false, head_dim_, wide_.data() + at, wide_.data() + at + part};
}

namespace {

void store_rows(const AttentionShape& shape, const StepCaches& step, const LayerScratch& s) {
  const std::int64_t width = shape.num_kv_heads * shape.head_dim,
                     heads = static_cast<std::int64_t>(step.sequences.size()) * shape.num_kv_heads;
  parallel_for(heads, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const CachedRows& rows = step.sequences[static_cast<std::size_t>(i / shape.num_kv_heads)];
      const std::int64_t kv_head = i % shape.num_kv_heads;
      const CachedHead head = rows.cache->head(step.layer, kv_head);
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        const std::int64_t from = (rows.first_row + r) * width + kv_head * shape.head_dim;
        store_cached_row(head, rows.cache->length() + r, s.k.data() + from, s.v.data() + from);
      }
    }
  });
}

// What one thread works on: a sequence's kv head. Long ones first, so that no thread is left with one.
struct Item {
  const CachedRows* rows;
  std::int64_t kv_head;
};
std::vector<Item> later_rows(const AttentionShape& shape, const StepCaches& step) {
  std::vector<Item> items;
  for (const CachedRows& rows : step.sequences)
    for (std::int64_t h = 0; h < shape.num_kv_heads; ++h)
      if (rows.cache->length() > 0) items.push_back({&rows, h});
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.rows->cache->length() > b.rows->cache->length();
  });
  return items;
}

void attend_item(const AttentionShape& shape, const Item& item, std::int64_t layer, LayerScratch* s,
                 float* scratch) {
  const std::int64_t group = shape.num_heads / shape.num_kv_heads, past = item.rows->cache->length();
  const CachedHead head = item.rows->cache->head(layer, item.kv_head);
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
  store_rows(shape, step, *s);
  if (!chunk.spans.empty()) attend_within_documents(shape, chunk, s);
  const std::vector<Item> items = later_rows(shape, step);
  if (items.empty()) return;
  std::int64_t longest = 0;
  for (const Item& item : items) longest = std::max(longest, item.rows->cache->length() + item.rows->rows);
  const std::int64_t floats =
      cached_attention_scratch_floats(shape.num_heads / shape.num_kv_heads, shape.head_dim, longest);
  room(&s->attended, chunk.rows * shape.num_heads * shape.head_dim);
  float* scratch = room(&s->attention, num_threads() * floats);
  parallel_items(static_cast<std::int64_t>(items.size()), [&](std::int64_t i, int thread) {
    attend_item(shape, items[static_cast<std::size_t>(i)], step.layer, s, scratch + thread * floats);
  });
}

}  // namespace eaglet
