// Matrix products on a device, against plain sums in double.

#include <limits>

#include "device/bf16_rounding.h"
#include "device/device_products.h"
#include "device/linear_weight.h"
#include "ops/device_test.h"
#include "ops/linear.h"
#include "ops/ops_test_util.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

using test::DeviceArray;
using test::DeviceFloats;
using test::random_floats;
using test::relative_difference;

class ProductOnDevice : public test::OnDevice {};

// A stored matrix: rows `ld` apart, the gaps filled with NaN that nobody may read.
std::vector<float> stored(std::int64_t rows, std::int64_t columns, std::int64_t ld, std::uint64_t stream) {
  std::vector<float> all(static_cast<std::size_t>((rows - 1) * ld + columns), std::nanf(""));
  const std::vector<float> values = random_floats(rows * columns, stream);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      all[static_cast<std::size_t>(i * ld + j)] = values[static_cast<std::size_t>(i * columns + j)];
  return all;
}

double at(const std::vector<float>& matrix, std::int64_t ld, Transpose transposed, std::int64_t i,
          std::int64_t j) {
  return transposed == Transpose::kYes ? matrix[static_cast<std::size_t>(j * ld + i)]
                                       : matrix[static_cast<std::size_t>(i * ld + j)];
}

struct Case {
  std::int64_t m, n, k;
  Transpose a_transposed, b_transposed;
  float alpha, beta;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Transpose a : {Transpose::kNo, Transpose::kYes})
    for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
      all.push_back({5, 7, 11, a, b, 1.0f, 0.0f});
      all.push_back({1, 1, 1, a, b, 0.5f, 1.0f});
      all.push_back({33, 2, 17, a, b, 1.0f, 1.0f});
      all.push_back({2, 40, 3, a, b, -2.0f, 0.25f});
    }
  return all;
}

TEST_F(ProductOnDevice, GemmAgreesWithPlainSumsInEveryLayout) {
  for (const Case& c : cases()) {
    const bool a_turned = c.a_transposed == Transpose::kYes, b_turned = c.b_transposed == Transpose::kYes;
    SCOPED_TRACE(testing::Message() << c.m << " " << c.n << " " << c.k << (a_turned ? " a'" : "")
                                    << (b_turned ? " b'" : ""));
    const std::int64_t lda = (a_turned ? c.m : c.k) + 3, ldb = (b_turned ? c.k : c.n) + 1, ldc = c.n + 2;
    const std::vector<float> a = stored(a_turned ? c.k : c.m, a_turned ? c.m : c.k, lda, 1),
                             b = stored(b_turned ? c.n : c.k, b_turned ? c.k : c.n, ldb, 2);
    const std::vector<float> before = random_floats((c.m - 1) * ldc + c.n, 3);
    std::vector<double> wanted(before.begin(), before.end());
    for (std::int64_t i = 0; i < c.m; ++i)
      for (std::int64_t j = 0; j < c.n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < c.k; ++l)
          sum += at(a, lda, c.a_transposed, i, l) * at(b, ldb, c.b_transposed, l, j);
        double& to = wanted[static_cast<std::size_t>(i * ldc + j)];
        to = static_cast<double>(c.alpha) * sum + static_cast<double>(c.beta) * to;
      }
    const DeviceFloats a_(a), b_(b);
    const auto results = test::twice([&] {
      const DeviceFloats c_(before);
      gemm(c.a_transposed, c.b_transposed, c.m, c.n, c.k, c.alpha, a_.data(), lda, b_.data(), ldb, c.beta,
           c_.data(), ldc);
      return std::vector<std::vector<float>>{c_.read()};
    });
    EXPECT_LT(relative_difference(results[0], wanted), 1e-6);
  }
}

TEST_F(ProductOnDevice, BetaZeroOverwritesNanAndNothingIsDoneForNoRows) {
  const std::vector<float> a = random_floats(6, 1), b = random_floats(6, 2);
  const DeviceFloats a_(a), b_(b), c_(4), kept(std::vector<float>{1, 2, 3, 4});
  linear(2, 2, 3, a_.data(), b_.data(), 3, false, c_.data());
  for (const float v : c_.read()) EXPECT_FALSE(std::isnan(v));
  linear(0, 2, 3, a_.data(), b_.data(), 3, false, kept.data());
  EXPECT_EQ(kept.read(), (std::vector<float>{1, 2, 3, 4}));
  linear(2, 2, 0, a_.data(), b_.data(), 3, true, kept.data());
  EXPECT_EQ(kept.read(), (std::vector<float>{1, 2, 3, 4}));
  linear(2, 2, 0, a_.data(), b_.data(), 3, false, kept.data());
  EXPECT_EQ(kept.read(), (std::vector<float>{0, 0, 0, 0}));
}

// Operands that begin anywhere: the library counts on aligned ones unless it is told.
TEST_F(ProductOnDevice, OperandsMayBeginAnywhere) {
  const std::int64_t n = 9, out = 5, in = 6;
  const std::vector<float> x = random_floats(n * in + 1, 1), w = random_floats(out * 2 * in, 2);
  std::vector<float> wanted(static_cast<std::size_t>(n * out));
  linear(n, out, in, x.data() + 1, w.data() + in, 2 * in, false, wanted.data());
  const DeviceFloats x_(x), w_(w), y_(n * out);
  for (int i = 0; i < 2; ++i) {  // the second time the plan is known, with other alignments in between
    linear(n, out, in, x_.data() + 1, w_.data() + in, 2 * in, false, y_.data());
    EXPECT_LT(relative_difference(y_.read(), wanted), 1e-6);
    linear(n, out, in, x_.data(), w_.data(), 2 * in, false, y_.data());
  }
}

TEST_F(ProductOnDevice, Bf16OperandsAreMultipliedAsTheyAreAndSummedInFp32) {
  const std::int64_t m = 7, n = 9, k = 50;
  const std::vector<float> a = random_floats(m * k, 1), b = random_floats(n * k, 2);
  std::vector<double> wanted;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += static_cast<double>(bf16_to_f32(f32_to_bf16(a[static_cast<std::size_t>(i * k + l)]))) *
               static_cast<double>(bf16_to_f32(f32_to_bf16(b[static_cast<std::size_t>(j * k + l)])));
      wanted.push_back(sum);
    }
  const DeviceFloats a_(a), b_(b), c_(m * n);
  const DeviceArray<std::uint16_t> a16(std::vector<std::uint16_t>(a.size(), 0xffff)),
      b16(std::vector<std::uint16_t>(b.size(), 0xffff));
  device_products()->round(m, k, a_.data(), k, a16.data());
  device_products()->round(n, k, b_.data(), k, b16.data());
  device_products()->multiply(Transpose::kNo, Transpose::kYes, m, n, k, a16.data(), k, b16.data(), k, 0.0f,
                              c_.data(), n);
  EXPECT_LT(relative_difference(c_.read(), wanted), 1e-6);
}

TEST_F(ProductOnDevice, RoundingIsTheHostsToTheBit) {
  std::vector<float> values = random_floats(1000, 1, 1e3);
  for (const float v : {0.0f, -0.0f, 1.00390625f, 1.01171875f, 3.4e38f, 1e-45f, -1e-39f,
                        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max()})
    values.push_back(v);
  std::vector<std::uint16_t> wanted(values.size());
  const auto n = static_cast<std::int64_t>(values.size());
  round_to_bf16(n, values.data(), wanted.data());
  const DeviceFloats values_(values);
  const DeviceArray<std::uint16_t> to(std::vector<std::uint16_t>(values.size(), 0));
  device_products()->round(1, n, values_.data(), n, to.data());
  EXPECT_EQ(to.read(), wanted);
}

// A weight that is part of a wider matrix, in both types, against the host's LinearWeight.
TEST_F(ProductOnDevice, LinearWeightsAreTheHosts) {
  const std::int64_t out = 21, in = 19, ldw = 40;
  const std::vector<float> w = random_floats(out * ldw, 1);
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16})
    for (const std::int64_t n : {0L, 1L, 5L, 300L}) {
      SCOPED_TRACE(testing::Message() << compute_type_name(type) << ", " << n << " rows");
      const std::vector<float> x = random_floats(n * in + 1, 2), dy = random_floats(n * out + 1, 3),
                               y_before = random_floats(n * out + 1, 4),
                               dx_before = random_floats(n * in + 1, 5),
                               dw_before = random_floats(out * ldw, 6);
      std::vector<float> y = y_before, dx = dx_before, dw = dw_before;
      ProductWorkspace workspace;
      LinearWeightOptions options;
      options.type = type;
      options.on_device = false;
      LinearWeight on_host(out, in, ldw, options, &workspace);
      on_host.load(w.data() + 20);
      on_host.forward(n, x.data(), true, y.data());
      on_host.backward_input(n, dy.data(), true, dx.data());
      on_host.backward_weight(n, dy.data(), x.data(), dw.data() + 20);
      const DeviceFloats w_(w), x_(x), dy_(dy);
      const auto results = test::twice([&] {
        const DeviceFloats ddx(dx_before), ddw(dw_before), yy(y_before);
        ProductWorkspace device_workspace;
        options.on_device = true;
        LinearWeight weight(out, in, ldw, options, &device_workspace);
        EXPECT_FALSE(weight.takes_rounded());
        weight.load(w_.data() + 20);
        weight.forward(n, x_.data(), true, yy.data());
        weight.backward_input(n, dy_.data(), true, ddx.data());
        weight.backward_weight(n, dy_.data(), x_.data(), ddw.data() + 20);
        return std::vector<std::vector<float>>{yy.read(), ddx.read(), ddw.read()};
      });
      EXPECT_LT(relative_difference(results[0], y), 1e-6);
      EXPECT_LT(relative_difference(results[1], dx), 1e-6);
      EXPECT_LT(relative_difference(results[2], dw), 1e-6);
    }
}

}  // namespace
}  // namespace eaglet
