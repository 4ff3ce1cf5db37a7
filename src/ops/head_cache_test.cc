#include "ops/head_cache.h"

#include <gtest/gtest.h>

#include "ops/ops_test_util.h"

namespace eaglet {
namespace {

using test::random_floats;

void store_rows(const HeadCacheShape& shape, std::int64_t begin, std::int64_t end, HeadCache* cache) {
  for (std::int64_t layer = 0; layer < shape.num_layers; ++layer)
    for (std::int64_t kv_head = 0; kv_head < shape.num_kv_heads; ++kv_head)
      for (std::int64_t row = begin; row < end; ++row) {
        const auto seed = static_cast<std::uint64_t>((layer * 10 + kv_head) * 1000 + row);
        const std::vector<float> key = random_floats(shape.head_dim, seed + 1),
                                 value = random_floats(shape.head_dim, seed + 100000);
        store_cached_row(cache->head(layer, kv_head), row, key.data(), value.data());
      }
}

std::vector<float> attended(const HeadCacheShape& shape, std::int64_t rows, HeadCache* cache) {
  std::vector<float> all;
  const std::vector<float> query = random_floats(shape.head_dim, 7);
  std::vector<float> out(query.size()),
      scratch(static_cast<std::size_t>(cached_attention_scratch_floats(shape.head_dim, 1, rows)));
  for (std::int64_t layer = 0; layer < shape.num_layers; ++layer)
    for (std::int64_t kv_head = 0; kv_head < shape.num_kv_heads; ++kv_head) {
      cached_attention(cache->head(layer, kv_head), 1, 0, rows, query.data(), out.data(), scratch.data());
      all.insert(all.end(), out.begin(), out.end());
    }
  return all;
}

// Into a cache with other room; then both go on with rows of their own.
TEST(HeadCache, CopiedRowsAreAsGoodAsStoredOnes) {
  for (const bool bf16 : {false, true})
    for (const std::int64_t dim : {7, 16})
      for (const std::int64_t rows : {1, 2, 23, 63, 64, 65, 130}) {
        SCOPED_TRACE(testing::Message()
                     << (bf16 ? "bf16" : "f32") << " D " << dim << ", " << rows << " rows");
        const HeadCacheShape shape = {2, 3, dim, bf16};
        HeadCache from(shape, 150), to(shape, 260);
        store_rows(shape, 0, 140, &from);
        to.copy_rows(from, rows);
        EXPECT_EQ(to.length(), rows);
        EXPECT_EQ(attended(shape, rows, &to), attended(shape, rows, &from));
        store_rows(shape, rows, 140, &to);
        EXPECT_EQ(attended(shape, 140, &to), attended(shape, 140, &from));
      }
}

}  // namespace
}  // namespace eaglet
