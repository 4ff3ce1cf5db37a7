#include "ops/adamw.h"
#include "ops/device_test.h"
#include "ops/ops_test_util.h"

namespace eaglet {
namespace {

using test::DeviceFloats;
using test::random_floats;
using test::relative_difference;

class AdamwOnDevice : public test::OnDevice {};

TEST_F(AdamwOnDevice, FollowsTheHostOverSeveralUpdates) {
  const AdamwOptions options{0.9, 0.95, 1e-8, 0.1};
  for (const std::int64_t n : {1, 31, 255, 256, 257, 5003}) {
    SCOPED_TRACE(n);
    std::vector<float> w = random_floats(n, 1), m(w.size(), 0.0f), v(w.size(), 0.0f);
    const DeviceFloats w_(w), m_(m), v_(v);
    for (int t = 1; t <= 4; ++t) {
      const std::vector<float> g = random_floats(n, 10 + static_cast<std::uint64_t>(t), 1e-3 * t);
      const DeviceFloats g_(g);
      adamw(n, w.data(), g.data(), m.data(), v.data(), 0.37, 0.01 * t, t, options);
      adamw(n, w_.data(), g_.data(), m_.data(), v_.data(), 0.37, 0.01 * t, t, options);
    }
    EXPECT_LT(relative_difference(w_.read(), w), 1e-6);
    EXPECT_LT(relative_difference(m_.read(), m), 1e-6);
    EXPECT_LT(relative_difference(v_.read(), v), 1e-6);
  }
}

TEST_F(AdamwOnDevice, NormsAreSummedInDoubleInAFixedOrder) {
  for (const std::int64_t n : {1, 33, 256, 300001}) {
    SCOPED_TRACE(n);
    const std::vector<float> values = random_floats(n, 3, 100.0);
    double sum = 0;
    for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
    const DeviceFloats values_(values);
    const double norm = l2_norm(n, values_.data());
    EXPECT_NEAR(norm, std::sqrt(sum), 1e-12 * std::sqrt(sum));
    if (n < 10000) {
      EXPECT_EQ(l2_norm(n, values_.data()), norm);
    }
  }
  const DeviceFloats none(1);
  EXPECT_EQ(l2_norm(0, none.data()), 0);
}

}  // namespace
}  // namespace eaglet
