#include "ops/device_test.h"
#include "ops/ops_test_util.h"
#include "ops/rms_norm.h"
#include "ops/rms_norm_ref.h"

namespace eaglet {
namespace {

using test::Complex;
using test::DeviceFloats;
using test::random_floats;
using test::relative_difference;
using test::widen;

class RmsNormOnDevice : public test::OnDevice {};

struct Size {
  std::int64_t n, width;
};
// Around a warp, a block and the border between both kernels; one row, and more rows than a block takes.
const Size kSizes[] = {{1, 1},   {3, 31},  {9, 32},  {8, 33},   {17, 97},
                       {130, 5}, {5, 512}, {3, 513}, {2, 1025}, {150, 40}};
constexpr double kEps = 1e-5;

// y of the reference for every row, in double.
std::vector<double> reference(const Size& s, const std::vector<float>& x, const std::vector<float>& w) {
  const std::vector<double> xd = widen<double>(x), wd = widen<double>(w);
  std::vector<double> y(xd.size());
  for (std::int64_t i = 0; i < s.n; ++i)
    ref::rms_norm_row(s.width, xd.data() + i * s.width, wd.data(), kEps, y.data() + i * s.width);
  return y;
}

TEST_F(RmsNormOnDevice, AgreesWithTheReferenceAtOddSizes) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.n << " rows of " << s.width);
    const std::vector<float> x = random_floats(s.n * s.width, 1, 3.0), w = random_floats(s.width, 2);
    const auto results = test::twice([&] {
      const DeviceFloats dx(x), dw(w), y(s.n * s.width), inv(s.n);
      rms_norm(s.n, s.width, dx.data(), s.width, dw.data(), kEps, y.data(), s.width, inv.data());
      return std::vector<std::vector<float>>{y.read(), inv.read()};
    });
    EXPECT_LT(relative_difference(results[0], reference(s, x, w)), 2e-7);
    std::vector<float> on_host(x.size()), inv_on_host(static_cast<std::size_t>(s.n));
    rms_norm(s.n, s.width, x.data(), s.width, w.data(), kEps, on_host.data(), s.width, inv_on_host.data());
    EXPECT_LT(relative_difference(results[1], inv_on_host), 1e-6);
  }
}

TEST_F(RmsNormOnDevice, RowsMayLieApartAndBeNormedInPlace) {
  const std::int64_t n = 7, width = 37, ldx = 50;
  const std::vector<float> x = random_floats(n * ldx, 1), w = random_floats(width, 2);
  std::vector<float> wanted = x, inv_on_host(static_cast<std::size_t>(n));
  rms_norm(n, width, wanted.data(), ldx, w.data(), kEps, wanted.data(), ldx, inv_on_host.data());
  const DeviceFloats both(x), dw(w), inv(n);
  rms_norm(n, width, both.data(), ldx, dw.data(), kEps, both.data(), ldx, inv.data());
  const std::vector<float> got = both.read();
  EXPECT_LT(relative_difference(got, wanted), 2e-7);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = width; j < ldx; ++j)
      EXPECT_EQ(got[static_cast<std::size_t>(i * ldx + j)], x[static_cast<std::size_t>(i * ldx + j)]);
}

TEST_F(RmsNormOnDevice, EachArrayHasItsOwnDistance) {
  const std::int64_t n = 5, width = 33, ldx = 50, ldy = 41;
  const std::vector<float> x = random_floats(n * ldx, 1), w = random_floats(width, 2),
                           before = random_floats(n * ldy, 3);
  std::vector<float> wanted = before, inv_on_host(static_cast<std::size_t>(n));
  rms_norm(n, width, x.data(), ldx, w.data(), kEps, wanted.data(), ldy, inv_on_host.data());
  const DeviceFloats x_(x), w_(w), y(before), inv(n);
  rms_norm(n, width, x_.data(), ldx, w_.data(), kEps, y.data(), ldy, inv.data());
  EXPECT_LT(relative_difference(y.read(), wanted), 2e-7);
}

TEST_F(RmsNormOnDevice, GradientsAgreeWithTheComplexStepOfTheReference) {
  for (const Size& s : {Size{3, 5}, Size{2, 33}, Size{9, 7}}) {
    SCOPED_TRACE(testing::Message() << s.n << " rows of " << s.width);
    const std::vector<float> x = random_floats(s.n * s.width, 1), w = random_floats(s.width, 2),
                             dy = random_floats(s.n * s.width, 3);
    const std::vector<Complex> xc = widen<Complex>(x), wc = widen<Complex>(w), dyc = widen<Complex>(dy);
    const auto loss = [&](const std::vector<Complex>& xs, const std::vector<Complex>& ws) {
      Complex sum(0);
      std::vector<Complex> y(static_cast<std::size_t>(s.width));
      for (std::int64_t i = 0; i < s.n; ++i) {
        ref::rms_norm_row(s.width, xs.data() + i * s.width, ws.data(), kEps, y.data());
        for (std::int64_t j = 0; j < s.width; ++j)
          sum += y[static_cast<std::size_t>(j)] * dyc[static_cast<std::size_t>(i * s.width + j)];
      }
      return sum;
    };
    const DeviceFloats dx_in(x), dw_in(w), ddy(dy), y(s.n * s.width), inv(s.n), dx(s.n * s.width),
        dw(std::vector<float>(w.size(), 0.0f));
    rms_norm(s.n, s.width, dx_in.data(), s.width, dw_in.data(), kEps, y.data(), s.width, inv.data());
    rms_norm_backward(s.n, s.width, dx_in.data(), dw_in.data(), inv.data(), ddy.data(), false, dx.data(),
                      dw.data(), nullptr);
    const auto by_x = test::complex_step_gradient([&](const auto& v) { return loss(v, wc); }, xc);
    const auto by_w = test::complex_step_gradient([&](const auto& v) { return loss(xc, v); }, wc);
    EXPECT_LT(relative_difference(dx.read(), by_x), 5e-7);
    EXPECT_LT(relative_difference(dw.read(), by_w), 5e-7);
  }
}

// All ways to call it: added or overwritten, dx in place of dy, without dx, without dw.
TEST_F(RmsNormOnDevice, BackwardAgreesWithTheHostInEveryForm) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.n << " rows of " << s.width);
    const std::vector<float> x = random_floats(s.n * s.width, 1), w = random_floats(s.width, 2),
                             dy = random_floats(s.n * s.width, 3), before = random_floats(s.n * s.width, 4),
                             dw_before = random_floats(s.width, 5);
    std::vector<float> y(x.size()), inv(static_cast<std::size_t>(s.n)), partial(1 << 16);
    rms_norm(s.n, s.width, x.data(), s.width, w.data(), kEps, y.data(), s.width, inv.data());
    const DeviceFloats x_(x), w_(w), inv_(inv), dy_(dy);
    for (const bool accumulate : {false, true})
      for (const bool in_place : {false, true}) {
        if (accumulate && in_place) continue;
        std::vector<float> dx = in_place ? dy : before, dw = dw_before;
        rms_norm_backward(s.n, s.width, x.data(), w.data(), inv.data(), in_place ? dx.data() : dy.data(),
                          accumulate, dx.data(), dw.data(), partial.data());
        const auto results = test::twice([&] {
          const DeviceFloats ddx(in_place ? dy : before), ddw(dw_before);
          rms_norm_backward(s.n, s.width, x_.data(), w_.data(), inv_.data(),
                            in_place ? ddx.data() : dy_.data(), accumulate, ddx.data(), ddw.data(), nullptr);
          return std::vector<std::vector<float>>{ddx.read(), ddw.read()};
        });
        EXPECT_LT(relative_difference(results[0], dx), 1e-6);
        EXPECT_LT(relative_difference(results[1], dw), 1e-6);
      }
    std::vector<float> dw = dw_before;
    rms_norm_backward(s.n, s.width, x.data(), w.data(), inv.data(), dy.data(), false, nullptr, dw.data(),
                      partial.data());
    const DeviceFloats ddw(dw_before), ddx(s.n * s.width);
    rms_norm_backward(s.n, s.width, x_.data(), w_.data(), inv_.data(), dy_.data(), false, nullptr, ddw.data(),
                      nullptr);
    EXPECT_LT(relative_difference(ddw.read(), dw), 1e-6);
    rms_norm_backward(s.n, s.width, x_.data(), w_.data(), inv_.data(), dy_.data(), false, ddx.data(), nullptr,
                      nullptr);
  }
}

// Groups of columns of a wider matrix, each with a weight of its own.
TEST_F(RmsNormOnDevice, TheWeightsPartAloneTakesRowsThatLieApart) {
  for (const Size& s : {Size{1, 5}, Size{70, 33}, Size{130, 7}}) {
    SCOPED_TRACE(testing::Message() << s.n << " rows of " << s.width);
    const std::int64_t ldx = 3 * s.width, lddy = 2 * s.width + 1;
    const std::vector<float> x = random_floats(s.n * ldx, 1), inv = random_floats(s.n, 2),
                             dy = random_floats(s.n * lddy, 3), before = random_floats(s.width, 4);
    std::vector<double> wanted(before.begin(), before.end());
    for (std::int64_t i = 0; i < s.n; ++i)
      for (std::int64_t j = 0; j < s.width; ++j)
        wanted[static_cast<std::size_t>(j)] += double{dy[static_cast<std::size_t>(i * lddy + j)]} *
                                               x[static_cast<std::size_t>(i * ldx + s.width + j)] *
                                               inv[static_cast<std::size_t>(i)];
    std::vector<float> on_host = before;
    rms_norm_weight_backward(s.n, s.width, x.data() + s.width, ldx, inv.data(), dy.data(), lddy,
                             on_host.data());
    EXPECT_LT(relative_difference(on_host, wanted), 1e-6);
    const DeviceFloats x_(x), inv_(inv), dy_(dy);
    const auto results = test::twice([&] {
      const DeviceFloats dw(before);
      rms_norm_weight_backward(s.n, s.width, x_.data() + s.width, ldx, inv_.data(), dy_.data(), lddy,
                               dw.data());
      return std::vector<std::vector<float>>{dw.read()};
    });
    EXPECT_LT(relative_difference(results[0], wanted), 1e-6);
  }
}

TEST_F(RmsNormOnDevice, NoRowsAreNoWork) {
  const DeviceFloats any(8);
  rms_norm(0, 8, any.data(), 8, any.data(), kEps, any.data(), 8, any.data());
  rms_norm_backward(0, 8, any.data(), any.data(), any.data(), any.data(), true, any.data(), any.data(),
                    nullptr);
  rms_norm_weight_backward(0, 8, any.data(), 8, any.data(), any.data(), 8, any.data());
}

}  // namespace
}  // namespace eaglet
