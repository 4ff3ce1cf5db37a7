#include "ops/device_test.h"
#include "ops/muon.h"
#include "ops/muon_ref.h"
#include "ops/ops_test_util.h"

namespace eaglet {
namespace {

using test::DeviceFloats;
using test::random_floats;
using test::relative_difference;
using test::widen;

class MuonOnDevice : public test::OnDevice {};

struct Shape {
  std::int64_t rows, columns;
};
const Shape kShapes[] = {{2, 2}, {3, 7}, {7, 3}, {17, 31}, {31, 17}, {40, 5}};

TEST_F(MuonOnDevice, NewtonSchulzFollowsTheReference) {
  for (const Shape& s : kShapes)
    for (const int steps : {1, 4, 5}) {
      SCOPED_TRACE(testing::Message() << s.rows << "x" << s.columns << ", " << steps << " steps");
      const std::vector<float> x = random_floats(s.rows * s.columns, 3);
      const auto want = newton_schulz_ref(static_cast<std::size_t>(s.rows),
                                          static_cast<std::size_t>(s.columns), steps, widen<double>(x));
      const auto got = test::twice([&] {
        const DeviceFloats x_(x), scratch(muon_scratch_floats(s.rows, s.columns));
        newton_schulz(s.rows, s.columns, steps, x_.data(), scratch.data());
        return std::vector<std::vector<float>>{x_.read()};
      });
      EXPECT_LT(relative_difference(got[0], want), 2e-4);
    }
}

TEST_F(MuonOnDevice, ZeroStaysZero) {
  const DeviceFloats x(std::vector<float>(12, 0.0f)), scratch(muon_scratch_floats(3, 4));
  newton_schulz(3, 4, 5, x.data(), scratch.data());
  EXPECT_EQ(x.read(), std::vector<float>(12, 0.0f));
}

TEST_F(MuonOnDevice, UpdatesFollowTheReference) {
  for (const bool nesterov : {true, false})
    for (const Shape& s : {Shape{3, 7}, Shape{9, 4}}) {
      MuonOptions options;
      options.nesterov = nesterov;
      options.rate = nesterov ? MuonRate::kMatchRmsAdamw : MuonRate::kOriginal;
      const std::int64_t n = s.rows * s.columns;
      const std::vector<float> start = random_floats(n, 1);
      std::vector<double> w = widen<double>(start), momentum(start.size(), 0.0);
      const DeviceFloats w_(start), momentum_(std::vector<float>(start.size(), 0.0f)),
          scratch(muon_scratch_floats(s.rows, s.columns));
      for (std::uint64_t t = 1; t <= 3; ++t) {
        const std::vector<float> g = random_floats(n, 10 + t);
        const DeviceFloats g_(g);
        muon(s.rows, s.columns, w_.data(), g_.data(), momentum_.data(), 0.37, 0.02, options, scratch.data());
        muon_ref(static_cast<std::size_t>(s.rows), static_cast<std::size_t>(s.columns), &w, widen<double>(g),
                 &momentum, 0.37, 0.02, options);
      }
      EXPECT_LT(relative_difference(w_.read(), w), 1e-4);
      EXPECT_LT(relative_difference(momentum_.read(), momentum), 1e-6);
    }
}

}  // namespace
}  // namespace eaglet
