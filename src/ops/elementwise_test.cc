#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "device/threads.h"
#include "ops/joined_rows.h"
#include "ops/ops_test_util.h"
#include "ops/rms_norm.h"
#include "ops/rms_norm_ref.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/swiglu.h"
#include "ops/vector_math.h"
#include "ops/vector_math_ref.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

using test::Complex;
using test::random_floats;
using test::relative_difference;
using test::widen;

// One lane, lanes - 1, lanes + 1, a prime, a tail: the sizes where vector loops go wrong.
const std::int64_t kSizes[] = {1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 97, 576};

TEST(VectorMath, AgreesWithPlainLoopsAtOddSizes) {
  for (const std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const std::vector<float> x = random_floats(n, 1, 3.0), y = random_floats(n, 2), w = random_floats(n, 3);
    const std::vector<double> xd = widen<double>(x), yd = widen<double>(y);
    EXPECT_EQ(vmax(x.data(), n), *std::max_element(x.begin(), x.end()));
    EXPECT_EQ(vargmax(x.data(), n), std::max_element(x.begin(), x.end()) - x.begin());
    EXPECT_NEAR(vdot(x.data(), y.data(), n), ref::dot(xd.data(), yd.data(), n),
                1e-5 * static_cast<double>(n));
    std::vector<float> e(x.size());
    std::vector<double> ed(x.size());
    const double sum = ref::exp_sum(xd.data(), n, 0.7, 0.3, ed.data());
    EXPECT_NEAR(vexp_sum(x.data(), n, 0.7f, 0.3f, e.data()), sum, 2e-6 * sum);
    EXPECT_LT(relative_difference(e, ed), 1e-6);
    double triple = 0;
    for (std::size_t i = 0; i < x.size(); ++i) triple += xd[i] * yd[i] * static_cast<double>(w[i]);
    EXPECT_NEAR(vdot3(x.data(), y.data(), w.data(), n), triple, 1e-5 * static_cast<double>(n));
  }
}

TEST(JoinedRows, APartIsTakenWithItsBiasAndNothingBesides) {
  constexpr std::int64_t kRows = 70, kBefore = 3, kWidth = 5,
                         kDistance = 11;  // more rows than one thread takes
  const std::vector<float> joined = random_floats(kRows * kDistance, 1), bias = random_floats(kWidth, 2);
  for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
    std::vector<float> part(kRows * kWidth + 1, 7.0f);
    take_joined(kRows, kWidth, kDistance, joined.data() + kBefore, added, part.data());
    for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
      const std::int64_t row = i / kWidth, column = i % kWidth;
      const float from = joined[static_cast<std::size_t>(row * kDistance + kBefore + column)];
      EXPECT_EQ(part[static_cast<std::size_t>(i)], added == nullptr ? from : from + added[column]) << i;
    }
    EXPECT_EQ(part.back(), 7.0f);
  }
}

TEST(VectorMath, WeighsRowsAtOddSizes) {
  for (const std::int64_t n : kSizes)
    for (const std::int64_t k : {0, 1, 5})
      for (const std::int64_t group : {1, 2, 3, 4, 9}) {
        SCOPED_TRACE(testing::Message() << n << " columns, " << k << " rows, group " << group);
        const std::int64_t ldw = k + 2, ldy = n + 3;
        const std::vector<float> w = random_floats(group * ldw, 1), y = random_floats(group * ldy, 3);
        std::vector<float> rows = random_floats(k * n, 2), wide = y, narrow = y;
        std::vector<std::uint16_t> bf16;
        for (float& v : rows) {
          bf16.push_back(f32_to_bf16(v));
          v = bf16_to_f32(bf16.back());
        }
        std::vector<double> wanted = widen<double>(y);
        for (std::int64_t g = 0; g < group; ++g)
          for (std::int64_t j = 0; j < k; ++j)
            for (std::int64_t i = 0; i < n; ++i)
              wanted[static_cast<std::size_t>(g * ldy + i)] +=
                  static_cast<double>(w[static_cast<std::size_t>(g * ldw + j)]) *
                  static_cast<double>(rows[static_cast<std::size_t>(j * n + i)]);
        vadd_rows(group, k, w.data(), ldw, rows.data(), n, wide.data(), ldy);
        vadd_rows(group, k, w.data(), ldw, bf16.data(), n, narrow.data(), ldy);
        EXPECT_LT(relative_difference(wide, wanted), 1e-6);
        EXPECT_EQ(wide, narrow);
      }
}

TEST(VectorMath, FirstOfEqualMaximaWins) {
  std::vector<float> x(40, 1.0f);
  x[5] = x[33] = 2.0f;
  EXPECT_EQ(vargmax(x.data(), 40), 5);
}

TEST(VectorMath, ExpFarBelowZeroIsZeroAndNothingIsNan) {
  const std::vector<float> x = {-1e4f, -200.0f, 0.0f, -87.0f};
  std::vector<float> y(4);
  EXPECT_NEAR(vexp_sum(x.data(), 4, 1.0f, 0.0f, y.data()), 1.0, 1e-6);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
}

TEST(RmsNorm, ForwardAndBackwardAgreeWithTheReference) {
  for (const std::int64_t width : {1L, 7L, 16L, 33L, 64L}) {
    SCOPED_TRACE(width);
    const std::int64_t rows = 19;
    const double eps = 1e-5;
    const std::vector<float> x = random_floats(rows * width, 4), w = random_floats(width, 5),
                             dy = random_floats(rows * width, 6);
    std::vector<float> y(x.size()), inv(static_cast<std::size_t>(rows)), dx(x.size()), dw(w.size(), 0.0f);
    std::vector<float> partial(static_cast<std::size_t>(num_threads() * width));
    rms_norm(rows, width, x.data(), width, w.data(), eps, y.data(), width, inv.data());
    rms_norm_backward(rows, width, x.data(), w.data(), inv.data(), dy.data(), false, dx.data(), dw.data(),
                      partial.data());

    const std::size_t wd = static_cast<std::size_t>(width);
    const auto loss = [&](const std::vector<Complex>& packed) {  // packed = x then w
      Complex sum(0);
      std::vector<Complex> out(wd);
      for (std::int64_t r = 0; r < rows; ++r) {
        ref::rms_norm_row(width, packed.data() + r * width, packed.data() + rows * width, eps, out.data());
        for (std::size_t j = 0; j < wd; ++j)
          sum += out[j] * static_cast<double>(dy[static_cast<std::size_t>(r) * wd + j]);
      }
      return sum;
    };
    std::vector<Complex> packed = widen<Complex>(x);
    for (const float v : w) packed.emplace_back(v, 0.0);
    const std::vector<double> gradient = test::complex_step_gradient(loss, packed);
    const std::vector<double> want_dx(gradient.begin(), gradient.begin() + rows * width);
    const std::vector<double> want_dw(gradient.begin() + rows * width, gradient.end());
    if (width > 1) {  // at width 1 the derivative is nearly 0
      EXPECT_LT(relative_difference(dx, want_dx), 2e-5);
    }
    EXPECT_LT(relative_difference(dw, want_dw), 1e-5);
    std::vector<double> out(wd);
    const std::vector<double> xd = widen<double>(x), wdd = widen<double>(w);
    ref::rms_norm_row(width, xd.data(), wdd.data(), eps, out.data());
    EXPECT_LT(relative_difference(std::vector<float>(y.begin(), y.begin() + width), out), 1e-6);
  }
}

TEST(Rope, BackwardIsTheInverseRotationAndNormsStay) {
  const std::int64_t rows = 5, heads = 3, half = 4;
  const std::vector<std::int32_t> positions = {0, 1, 7, 100, 4095};
  const std::vector<float> inv_freq = {1.0f, 0.1f, 0.01f, 0.001f};
  std::vector<float> cos(rows * half), sin(rows * half);
  rope_angles(rows, positions.data(), half, inv_freq.data(), 1.0f, cos.data(), sin.data());
  const std::vector<float> x = random_floats(rows * heads * 2 * half, 7);
  std::vector<float> y = x;
  rope_rotate(rows, heads, half, cos.data(), sin.data(), y.data());
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + heads * 2 * half),
            std::vector<float>(x.begin(), x.begin() + heads * 2 * half));
  EXPECT_GT(relative_difference(y, x), 0.1);
  // Pair (i, i + half) of row 1: a' = a cos - b sin.
  const std::size_t at = static_cast<std::size_t>(heads * 2 * half);
  EXPECT_NEAR(y[at], x[at] * std::cos(1.0) - x[at + 4] * std::sin(1.0), 1e-6);
  rope_rotate_backward(rows, heads, half, cos.data(), sin.data(), y.data());
  EXPECT_LT(relative_difference(y, x), 1e-6);
}

// A gate far below zero once made NaN of exp(-gate).
TEST(Swiglu, LargeGatesStayFiniteAndNaNStaysNaN) {
  std::vector<float> gate(40, 1.0f), up(40, 2.0f), act(40), d_act(40, 1.0f);
  const float values[] = {-90, -103, -105, -300, -1e30f, 90, 105, 300, 1e30f};
  for (std::size_t i = 0; i < std::size(values); ++i) gate[4 * i] = values[i];
  gate[39] = std::nanf("");
  swiglu(1, 40, gate.data(), up.data(), act.data());
  for (std::size_t i = 0; i < std::size(values); ++i)
    EXPECT_NEAR(act[4 * i], values[i] > 0 ? 2 * values[i] : 0.0f, 1e-6f) << values[i];
  EXPECT_TRUE(std::isnan(act[39]));
  swiglu_backward(1, 40, gate.data(), up.data(), d_act.data());
  for (std::size_t i = 0; i < 39; ++i) EXPECT_TRUE(std::isfinite(gate[i]) && std::isfinite(up[i])) << i;
}

TEST(Swiglu, BackwardAgreesWithAComplexStep) {
  const std::int64_t n = 37;
  const std::vector<float> g = random_floats(n, 8, 2.0), u = random_floats(n, 9), dy = random_floats(n, 10);
  std::vector<float> act(g.size()), gate = g, up = u, d_act = dy;
  swiglu(1, n, g.data(), u.data(), act.data());
  swiglu_backward(1, n, gate.data(), up.data(), d_act.data());
  const auto loss = [&](const std::vector<Complex>& packed) {
    Complex sum(0);
    for (std::size_t i = 0; i < g.size(); ++i)
      sum += ref::silu(packed[i]) * packed[g.size() + i] * static_cast<double>(dy[i]);
    return sum;
  };
  std::vector<Complex> packed = widen<Complex>(g);
  for (const float v : u) packed.emplace_back(v, 0.0);
  const std::vector<double> gradient = test::complex_step_gradient(loss, packed);
  EXPECT_LT(relative_difference(gate, std::vector<double>(gradient.begin(), gradient.begin() + n)), 2e-6);
  EXPECT_LT(relative_difference(up, std::vector<double>(gradient.begin() + n, gradient.end())), 2e-6);
  EXPECT_EQ(d_act, act);  // the backward hands the activation back
}

TEST(Rows, GatherThenScatterIsTheIdentityOnTheRowsNamed) {
  const std::int64_t rows = 70, width = 5;
  const std::vector<float> x = random_floats(rows * width, 11);
  std::vector<std::int32_t> index;
  for (std::int32_t i = 0; i < rows; i += 2) index.push_back(i);
  std::vector<float> picked(index.size() * 5), back(x.size(), -1.0f);
  gather_rows(static_cast<std::int64_t>(index.size()), width, x.data(), index.data(), picked.data());
  zero_rows(rows, width, back.data());
  scatter_add_rows(static_cast<std::int64_t>(index.size()), width, picked.data(), index.data(), back.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(back[i], i / 5 % 2 == 0 ? x[i] : 0.0f);
}

}  // namespace
}  // namespace eaglet
