#include "ops/cached_attention.h"

#include <gtest/gtest.h>

#include "ops/attention_ref.h"
#include "ops/ops_test_util.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

using test::random_floats;
using test::relative_difference;
using test::widen;

/// A head with its memory; rows beyond those stored hold what a shorter sequence before may have left there.
struct TestHead {
  std::vector<float> wide_keys, wide_values;
  std::vector<std::uint16_t> narrow_keys, narrow_values;
  CachedHead head;
  TestHead(bool bf16, std::int64_t dim, std::int64_t rows) {
    const auto size = static_cast<std::size_t>((rows + 63) / 64 * 64 * cached_width(bf16, dim));
    wide_keys.assign(size, 3.0f), wide_values.assign(size, 4.0f);
    narrow_keys.assign(size, 0x4000), narrow_values.assign(size, 0x4040);
    head = {bf16, dim, wide_keys.data(), wide_values.data()};
    if (bf16) head.keys = narrow_keys.data(), head.values = narrow_values.data();
  }
};

std::vector<double> rounded(bool bf16, const float* x, std::int64_t n) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<double>(bf16 ? bf16_to_f32(f32_to_bf16(x[i])) : x[i]));
  return out;
}

struct Range {
  std::int64_t begin, end;
};

void check(bool bf16, std::int64_t dim, std::int64_t group, Range range) {
  SCOPED_TRACE(testing::Message() << (bf16 ? "bf16" : "f32") << " D " << dim << " group " << group << " rows "
                                  << range.begin << " to " << range.end);
  const std::int64_t rows = range.end;
  const std::vector<float> keys = random_floats(rows * dim, 1, 0.7), values = random_floats(rows * dim, 2),
                           queries = random_floats(group * dim, 3, 0.7);
  const TestHead made(bf16, dim, rows);
  for (std::int64_t row = 0; row < rows; ++row)
    store_cached_row(made.head, row, keys.data() + row * dim, values.data() + row * dim);
  std::vector<float> out(static_cast<std::size_t>(group * dim), -7.0f),
      scratch(static_cast<std::size_t>(cached_attention_scratch_floats(dim, group, rows)), -9.0f);
  cached_attention(made.head, group, range.begin, range.end, queries.data(), out.data(), scratch.data());
  std::vector<std::vector<double>> k, v;
  for (std::int64_t row = range.begin; row < range.end; ++row) {
    k.push_back(rounded(bf16, keys.data() + row * dim, dim));
    v.push_back(rounded(bf16, values.data() + row * dim, dim));
  }
  std::vector<double> wanted;
  for (std::int64_t g = 0; g < group; ++g) {
    const std::vector<double> row = ref::attention_row(rounded(bf16, queries.data() + g * dim, dim), k, v);
    wanted.insert(wanted.end(), row.begin(), row.end());
  }
  // bf16: each weight is off by 1/512 of itself at most, and they do not all err the same way.
  EXPECT_LT(relative_difference(out, wanted), bf16 ? 4e-3 : 2e-6);
}

TEST(CachedAttention, AgreesWithPlainLoops) {
  for (const bool bf16 : {false, true})
    for (const std::int64_t dim : {4, 7, 24, 64, 80, 128})
      for (const std::int64_t group : {1, 3, 8})
        for (const Range range : {Range{0, 1},
                                  {0, 63},
                                  {0, 64},
                                  {0, 65},
                                  {0, 200},
                                  {5, 6},
                                  {5, 7},
                                  {6, 7},
                                  {63, 130},
                                  {130, 200}})
          check(bf16, dim, group, range);
}

TEST(CachedAttention, LongSequencesLeaveTheLargestExponentAtOne) {
  const TestHead made(false, 2, 3);
  const std::vector<float> key = {200, 0}, value = {1, 2}, query = {100, 0};
  for (std::int64_t row = 0; row < 3; ++row) store_cached_row(made.head, row, key.data(), value.data());
  std::vector<float> out(2), scratch(static_cast<std::size_t>(cached_attention_scratch_floats(2, 1, 3)));
  cached_attention(made.head, 1, 0, 3, query.data(), out.data(), scratch.data());
  EXPECT_FLOAT_EQ(out[0], 1);
  EXPECT_FLOAT_EQ(out[1], 2);
}

}  // namespace
}  // namespace eaglet
