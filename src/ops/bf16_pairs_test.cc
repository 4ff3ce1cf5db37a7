#include "ops/bf16_pairs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops_test_util.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

using test::random_floats;

std::vector<std::uint16_t> random_bf16(std::int64_t n, std::uint64_t seed) {
  std::vector<std::uint16_t> out;
  for (const float x : random_floats(n, seed)) out.push_back(f32_to_bf16(x));
  return out;
}

double number(const std::vector<std::uint16_t>& all, std::int64_t i) {
  return static_cast<double>(bf16_to_f32(all[static_cast<std::size_t>(i)]));
}

using AddPairs = decltype(&add_bf16_pairs);

void check(AddPairs add, std::int64_t group, std::int64_t pairs, std::int64_t n) {
  SCOPED_TRACE(testing::Message() << "group " << group << ", " << pairs << " pairs, " << n << " columns");
  const std::int64_t ldw = pairs + 3, distance = n + 5, ldy = n + 2;
  const std::vector<std::uint16_t> w = random_bf16(group * 2 * ldw, 1),
                                   rows = random_bf16(pairs * 2 * distance, 2);
  const std::vector<float> before = random_floats(group * ldy, 3);
  std::vector<float> y = before;
  add(group, pairs, w.data(), ldw, rows.data(), distance, n, y.data(), ldy);
  for (std::int64_t g = 0; g < group; ++g)
    for (std::int64_t i = 0; i < ldy; ++i) {
      const auto at = static_cast<std::size_t>(g * ldy + i);
      double sum = static_cast<double>(before[at]), size = std::fabs(sum);
      for (std::int64_t j = 0; j < 2 * pairs && i < n; ++j) {
        const double product = number(w, g * 2 * ldw + j) * number(rows, (j / 2 * distance + i) * 2 + j % 2);
        sum += product;
        size += std::fabs(product);
      }
      ASSERT_NEAR(y[at], sum, 1e-6 * size) << "group " << g << ", column " << i;
    }
}

TEST(Bf16Pairs, AreAddedAsPlainLoopsDo) {
  for (const AddPairs add : {&add_bf16_pairs, &add_bf16_pairs_apart})
    for (const std::int64_t group : {1, 2, 3, 4, 7, 8})
      for (const std::int64_t pairs : {1, 2, 32, 101})
        for (const std::int64_t n : {1, 15, 16, 17, 63, 64, 80, 200}) check(add, group, pairs, n);
}

}  // namespace
}  // namespace eaglet
