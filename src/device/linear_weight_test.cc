#include "device/linear_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "device/bf16_rounding.h"
#include "device/threads.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

std::vector<float> random_floats(std::int64_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(rng.normal());
  return values;
}

// What a product may read: operands as they are, or rounded.
double operand(float value, ComputeType type) {
  return type == ComputeType::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

double relative_difference(const std::vector<float>& got, const std::vector<double>& want) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / size);
}

// The three products of a weight that lies in a wider matrix, against plain sums of the (rounded) operands.
void check_products(std::int64_t n, std::int64_t out, std::int64_t in, ComputeType type, bool accumulate,
                    bool pack = true, std::int64_t row_step = 32) {
  SCOPED_TRACE(testing::Message() << compute_type_name(type) << " n " << n << " out " << out << " in " << in
                                  << " accumulate " << accumulate);
  const std::int64_t ldw = in + 5;
  const std::vector<float> w = random_floats(out * ldw, 1), x = random_floats(n * in, 2),
                           dy = random_floats(n * out, 3);
  std::vector<float> y = random_floats(n * out, 4), dx = random_floats(n * in, 5),
                     dw = random_floats(out * ldw, 6);
  std::vector<double> y_want(y.size()), dx_want(dx.size()), dw_want(dw.begin(), dw.end());
  for (std::size_t i = 0; i < y.size(); ++i) y_want[i] = accumulate ? y[i] : 0.0;
  for (std::size_t i = 0; i < dx.size(); ++i) dx_want[i] = accumulate ? dx[i] : 0.0;
  const auto at = [](std::int64_t row, std::int64_t width, std::int64_t column) {
    return static_cast<std::size_t>(row * width + column);
  };
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) {
        const double wv = operand(w[at(o, ldw, i)], type), xv = operand(x[at(r, in, i)], type);
        const double dv = operand(dy[at(r, out, o)], type);
        y_want[at(r, out, o)] += xv * wv;
        dx_want[at(r, in, i)] += dv * wv;
        dw_want[at(o, ldw, i)] += dv * xv;
      }
  ProductWorkspace workspace;
  LinearWeight weight(out, in, ldw, {type, pack, true, 0, row_step}, &workspace);
  weight.load(w.data());
  weight.forward(n, x.data(), accumulate, y.data());
  weight.backward_input(n, dy.data(), accumulate, dx.data());
  weight.backward_weight(n, dy.data(), x.data(), dw.data());
  EXPECT_LT(relative_difference(y, y_want), 1e-6);
  EXPECT_LT(relative_difference(dx, dx_want), 1e-6);
  EXPECT_LT(relative_difference(dw, dw_want), 1e-6);
}

TEST(LinearWeight, ProductsAreThoseOfTheOperands) {
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16})
    for (const bool accumulate : {false, true}) {
      for (const std::int64_t n : {1, 31, 32, 33, 255, 256, 300, 517})
        check_products(n, 24, 40, type, accumulate);
      check_products(7, 1, 1, type, accumulate);
      check_products(40, 130, 17, type, accumulate);
      for (const std::int64_t n : {1, 15, 16, 17, 48, 272})
        check_products(n, 24, 40, type, accumulate, true, 16);
    }
  check_products(300, 24, 40, ComputeType::kF32, true, false);
  check_products(1300, 9, 6, ComputeType::kBf16, true);  // deeper than one block of the weight's gradient
}

TEST(LinearWeight, NoRowsAreFine) {
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16}) {
    ProductWorkspace workspace;
    LinearWeight weight(4, 3, 3, {type, true, true}, &workspace);
    const std::vector<float> w(12, 1.0f);
    std::vector<float> dw(12, 2.0f);
    weight.load(w.data());
    weight.forward(0, nullptr, false, nullptr);
    weight.backward_input(0, nullptr, false, nullptr);
    weight.backward_weight(0, nullptr, nullptr, dw.data());
    EXPECT_EQ(dw, std::vector<float>(12, 2.0f));
  }
}

TEST(LinearWeight, NewValuesAreTakenIn) {
  ProductWorkspace workspace;
  LinearWeight weight(1, 2, 2, {ComputeType::kBf16, false, true}, &workspace);
  std::vector<float> w = {1, 2}, y(1);
  const std::vector<float> x = {1, 1};
  weight.load(w.data());
  weight.forward(1, x.data(), false, y.data());
  EXPECT_EQ(y[0], 3);
  w = {5, 6};
  weight.load(w.data());
  weight.forward(1, x.data(), false, y.data());
  EXPECT_EQ(y[0], 11);
  w = {1.001f, 0};  // bf16 would make 1 of it
  weight.load_exact(w.data());
  weight.forward(1, x.data(), false, y.data());
  EXPECT_EQ(y[0], 1.001f);
}

TEST(LinearWeight, SameThreadsSameBitsAndNaNStaysNaN) {
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16}) {
    const std::vector<float> w = random_floats(300 * 64, 1);
    std::vector<float> x = random_floats(100 * 64, 2), first(100 * 300), second(100 * 300);
    ProductWorkspace workspace;
    LinearWeight weight(300, 64, 64, {type, true, false}, &workspace);
    weight.load(w.data());
    weight.forward(100, x.data(), false, first.data());
    weight.forward(100, x.data(), false, second.data());
    EXPECT_EQ(first, second);
    x[5 * 64 + 3] = std::nanf("");
    weight.forward(100, x.data(), false, second.data());
    EXPECT_TRUE(std::isnan(second[5 * 300]));
    EXPECT_EQ(second[4 * 300], first[4 * 300]);
  }
}

TEST(Bf16Rounding, EqualsTheScalarRule) {
  std::vector<float> values = random_floats(1003, 7);
  const std::uint32_t odd_bits[] = {0x7fffffff, 0xffffffff, 0x7f800001, 0x7f800000, 0xff800000,
                                    0x7f7fffff, 0x00000001, 0x3f808000, 0x3f818000, 0x3f808001};
  for (const std::uint32_t bits : odd_bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    values.insert(values.begin() + 3, value);
  }
  std::vector<std::uint16_t> got(values.size());
  round_to_bf16(static_cast<std::int64_t>(values.size()), values.data(), got.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i], f32_to_bf16(values[i])) << i;
}

TEST(ComputeType, NamesAndMeasurement) {
  EXPECT_EQ(*parse_compute_type("bf16"), ComputeType::kBf16);
  EXPECT_EQ(*parse_compute_type("f32"), ComputeType::kF32);
  EXPECT_EQ(parse_compute_type("fp16").status().code(), StatusCode::kUsage);
  EXPECT_GT(measured_product_flops(ComputeType::kF32), 1e8);
}

}  // namespace
}  // namespace eaglet
