#include "ops/head_cache.h"

#include <algorithm>

namespace eaglet {
namespace {

std::int64_t whole_blocks(std::int64_t rows) {
  return (rows + kCachedBlockRows - 1) / kCachedBlockRows * kCachedBlockRows;
}
std::int64_t elements(const HeadCacheShape& s, std::int64_t rows) {
  return 2 * s.num_layers * s.num_kv_heads * cached_width(s.bf16, s.head_dim) * whole_blocks(rows);
}

}  // namespace

HeadCache::HeadCache(const HeadCacheShape& shape, std::int64_t rows)
    : shape_(shape), rows_(whole_blocks(rows)) {
  const auto n = static_cast<std::size_t>(elements(shape, rows));
  if (shape.bf16)
    narrow_.resize(n);
  else
    wide_.resize(n);
}

std::uint64_t HeadCache::bytes(const HeadCacheShape& shape, std::int64_t rows) {
  return static_cast<std::uint64_t>(elements(shape, rows)) * (shape.bf16 ? 2 : 4);
}

CachedHead HeadCache::head(std::int64_t layer, std::int64_t kv_head) {
  const std::int64_t part = rows_ * cached_width(shape_.bf16, shape_.head_dim),
                     at = 2 * (layer * shape_.num_kv_heads + kv_head) * part;
  if (shape_.bf16) return {true, shape_.head_dim, narrow_.data() + at, narrow_.data() + at + part};
  return {false, shape_.head_dim, wide_.data() + at, wide_.data() + at + part};
}

// Keys in whole blocks, values in pairs of rows: what lies behind is overwritten when its rows come.
template <class Element>
void HeadCache::copy_elements(const std::vector<Element>& from, std::int64_t from_rows, std::int64_t rows,
                              std::vector<Element>* to) const {
  const std::int64_t width = cached_width(shape_.bf16, shape_.head_dim);
  for (std::int64_t head = 0; head < shape_.num_layers * shape_.num_kv_heads; ++head) {
    const Element* source = from.data() + 2 * head * from_rows * width;
    Element* target = to->data() + 2 * head * rows_ * width;
    std::copy_n(source, whole_blocks(rows) * width, target);
    std::copy_n(source + from_rows * width, (rows + rows % 2) * width, target + rows_ * width);
  }
}

void HeadCache::copy_rows(const HeadCache& from, std::int64_t rows) {
  if (shape_.bf16)
    copy_elements(from.narrow_, from.rows_, rows, &narrow_);
  else
    copy_elements(from.wide_, from.rows_, rows, &wide_);
  length_ = rows;
}

}  // namespace eaglet
