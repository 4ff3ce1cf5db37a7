// RoPE, SwiGLU, rows and biases on a device, against the host's ops (which elementwise_test.cc holds to the
// references) and plain sums in double.

#include <numeric>

#include "ops/bias.h"
#include "ops/device_test.h"
#include "ops/ops_test_util.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/swiglu.h"
#include "ops/vector_math_ref.h"

namespace eaglet {
namespace {

using test::DeviceFloats;
using test::DeviceInts;
using test::random_floats;
using test::relative_difference;
using test::widen;

class ElementwiseOnDevice : public test::OnDevice {};

struct Size {
  std::int64_t n, width;
};
const Size kSizes[] = {{1, 1},   {1, 31},  {7, 33},  {65, 3},
                       {2, 257}, {33, 64}, {300, 2}, {4100, 1}};  // more rows than blocks

// Distinct rows of `rows`, in an order of their own.
std::vector<std::int32_t> distinct_rows(std::int64_t n, std::int64_t rows) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  Rng rng(5, static_cast<std::uint64_t>(n));
  rng.shuffle(all);
  all.resize(static_cast<std::size_t>(n));
  return all;
}

TEST_F(ElementwiseOnDevice, RopeTurnsAsOnTheHostAndBack) {
  struct Shape {
    std::int64_t n, heads, half;
  };
  for (const Shape& s : {Shape{1, 1, 1}, Shape{5, 3, 4}, Shape{9, 2, 65}, Shape{33, 4, 16}}) {
    SCOPED_TRACE(testing::Message() << s.n << " rows, " << s.heads << " heads, half " << s.half);
    std::vector<std::int32_t> positions(static_cast<std::size_t>(s.n));
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i * i * 97);
    const std::vector<float> frequencies = random_floats(s.half, 1),
                             x = random_floats(s.n * s.heads * s.half * 2, 2);
    std::vector<float> cos(static_cast<std::size_t>(s.n * s.half)), sin = cos, turned = x;
    rope_angles(s.n, positions.data(), s.half, frequencies.data(), 0.8f, cos.data(), sin.data());
    rope_rotate(s.n, s.heads, s.half, cos.data(), sin.data(), turned.data());
    const DeviceInts positions_(positions);
    const DeviceFloats frequencies_(frequencies);
    const auto results = test::twice([&] {
      const DeviceFloats cos_(s.n * s.half), sin_(s.n * s.half), x_(x);
      rope_angles(s.n, positions_.data(), s.half, frequencies_.data(), 0.8f, cos_.data(), sin_.data());
      rope_rotate(s.n, s.heads, s.half, cos_.data(), sin_.data(), x_.data());
      const std::vector<float> forth = x_.read();
      rope_rotate_backward(s.n, s.heads, s.half, cos_.data(), sin_.data(), x_.data());
      return std::vector<std::vector<float>>{cos_.read(), sin_.read(), forth, x_.read()};
    });
    EXPECT_LT(relative_difference(results[0], cos), 1e-6);
    EXPECT_LT(relative_difference(results[1], sin), 1e-6);
    EXPECT_LT(relative_difference(results[2], turned), 1e-6);
    std::vector<float> shorter = x;
    for (float& v : shorter) v *= 0.8f * 0.8f;  // the scaling is part of both ways
    EXPECT_LT(relative_difference(results[3], shorter), 1e-6);
  }
}

TEST_F(ElementwiseOnDevice, SwigluAgreesWithTheFormulaAndItsDerivative) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
    std::vector<float> gate = random_floats(s.n * s.width, 1, 3.0), up = random_floats(s.n * s.width, 2),
                       dy = random_floats(s.n * s.width, 3);
    if (s.n > 1) gate[0] = -120;  // exp overflows there
    std::vector<double> act, d_gate, d_up;
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i], u = up[i], d = dy[i], sigmoid = 1 / (1 + std::exp(-g));
      act.push_back(ref::silu(g) * u);
      d_gate.push_back(d * u * sigmoid * (1 + g * (1 - sigmoid)));
      d_up.push_back(d * ref::silu(g));
    }
    const auto results = test::twice([&] {
      const DeviceFloats gate_(gate), up_(up), act_(s.n * s.width), dy_(dy);
      swiglu(s.n, s.width, gate_.data(), up_.data(), act_.data());
      swiglu_backward(s.n, s.width, gate_.data(), up_.data(), dy_.data());
      return std::vector<std::vector<float>>{act_.read(), gate_.read(), up_.read(), dy_.read()};
    });
    EXPECT_LT(relative_difference(results[0], act), 1e-6);
    EXPECT_LT(relative_difference(results[1], d_gate), 1e-6);
    EXPECT_LT(relative_difference(results[2], d_up), 1e-6);
    EXPECT_LT(relative_difference(results[3], act), 1e-6);
  }
}

TEST_F(ElementwiseOnDevice, RowsAreGatheredAndScatteredExactly) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
    const std::int64_t rows = 2 * s.n + 1;
    const std::vector<std::int32_t> index = distinct_rows(s.n, rows);
    const std::vector<float> table = random_floats(rows * s.width, 1), from = random_floats(s.n * s.width, 2);
    std::vector<float> gathered(from.size()), scattered = table, straight = table;
    gather_rows(s.n, s.width, table.data(), index.data(), gathered.data());
    scatter_add_rows(s.n, s.width, from.data(), index.data(), scattered.data());
    scatter_add_rows(s.n, s.width, from.data(), nullptr, straight.data());
    const DeviceInts index_(index);
    const DeviceFloats table_(table), from_(from), gathered_(s.n * s.width), scattered_(table),
        straight_(table), copied_(s.n * s.width);
    gather_rows(s.n, s.width, table_.data(), index_.data(), gathered_.data());
    gather_rows(s.n, s.width, table_.data(), nullptr, copied_.data());
    scatter_add_rows(s.n, s.width, from_.data(), index_.data(), scattered_.data());
    scatter_add_rows(s.n, s.width, from_.data(), nullptr, straight_.data());
    EXPECT_EQ(gathered_.read(), gathered);
    EXPECT_EQ(copied_.read(), std::vector<float>(table.begin(), table.begin() + s.n * s.width));
    EXPECT_EQ(scattered_.read(), scattered);
    EXPECT_EQ(straight_.read(), straight);
    zero_rows(s.n, s.width, straight_.data());
    std::vector<float> zeroed = straight;
    std::fill(zeroed.begin(), zeroed.begin() + s.n * s.width, 0.0f);
    EXPECT_EQ(straight_.read(), zeroed);
  }
}

TEST_F(ElementwiseOnDevice, RepeatedRowsAreAddedInTheirOrder) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
    std::vector<std::int32_t> index;
    for (std::int64_t i = 0; i < s.n; ++i) index.push_back(static_cast<std::int32_t>(i * i % 5));
    const std::vector<float> from = random_floats(s.n * s.width, 2), before = random_floats(5 * s.width, 1);
    std::vector<float> wanted = before;
    scatter_add_repeated_rows(s.n, s.width, from.data(), index.data(), wanted.data());
    const DeviceInts index_(index);
    const DeviceFloats from_(from);
    const auto results = test::twice([&] {
      const DeviceFloats to_(before);
      scatter_add_repeated_rows(s.n, s.width, from_.data(), index_.data(), to_.data());
      return std::vector<std::vector<float>>{to_.read()};
    });
    EXPECT_EQ(results[0], wanted);
  }
}

TEST_F(ElementwiseOnDevice, BiasesAreAddedAndTheirGradientsSummedInDouble) {
  for (const Size& s : {Size{1, 1}, Size{9, 33}, Size{300, 31}, Size{1000, 5}, Size{64, 70}}) {
    SCOPED_TRACE(testing::Message() << s.n << " x " << s.width);
    const std::vector<float> y = random_floats(s.n * s.width, 1), bias = random_floats(s.width, 2);
    std::vector<float> wanted = y;
    add_bias(s.n, s.width, bias.data(), wanted.data());
    std::vector<double> sums = widen<double>(bias);
    for (std::int64_t i = 0; i < s.n; ++i)
      for (std::int64_t j = 0; j < s.width; ++j)
        sums[static_cast<std::size_t>(j)] += y[static_cast<std::size_t>(i * s.width + j)];
    const auto results = test::twice([&] {
      const DeviceFloats y_(y), bias_(bias), db_(bias);
      bias_backward(s.n, s.width, y_.data(), db_.data());
      add_bias(s.n, s.width, bias_.data(), y_.data());
      add_bias(s.n, s.width, nullptr, y_.data());
      bias_backward(s.n, s.width, y_.data(), nullptr);
      return std::vector<std::vector<float>>{y_.read(), db_.read()};
    });
    EXPECT_EQ(results[0], wanted);
    EXPECT_LT(relative_difference(results[1], sums), 1e-6);
  }
}

}  // namespace
}  // namespace eaglet
