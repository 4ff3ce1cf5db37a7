#pragma once

#include <cstdint>
#include <vector>

#include "ops/cached_attention.h"

namespace eaglet {

struct HeadCacheShape {
  std::int64_t num_layers = 0, num_kv_heads = 0, head_dim = 0;
  bool bf16 = false;  // half of what fp32 takes
};

/// Keys and values of one sequence in all layers of a model, for generation. Memory is given by the system
/// page by page as rows come; bytes() is what all rows will take.
class HeadCache {
 public:
  HeadCache(const HeadCacheShape& shape, std::int64_t rows);
  static std::uint64_t bytes(const HeadCacheShape& shape, std::int64_t rows);

  std::int64_t length() const { return length_; }
  std::int64_t room() const { return rows_; }
  CachedHead head(std::int64_t layer, std::int64_t kv_head);
  /// `rows` more rows are there, in all layers.
  void advance(std::int64_t rows) { length_ += rows; }
  /// Becomes the first `rows` rows of `from`, a cache of the same shape that holds as many.
  void copy_rows(const HeadCache& from, std::int64_t rows);
  /// Forgets rows from `length` on: drafted tokens that were refused.
  void cut(std::int64_t length) { length_ = length; }

 private:
  template <class Element>
  void copy_elements(const std::vector<Element>& from, std::int64_t from_rows, std::int64_t rows,
                     std::vector<Element>* to) const;
  HeadCacheShape shape_;
  std::int64_t rows_, length_ = 0;
  std::vector<std::uint16_t> narrow_;
  std::vector<float> wide_;
};

}  // namespace eaglet
