#include "ops/muon.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/rng.h"
#include "device/threads.h"
#include "ops/muon_ref.h"

namespace eaglet {
namespace {

using Shape = std::pair<std::int64_t, std::int64_t>;
const std::vector<Shape> kShapes = {{2, 2}, {3, 7}, {7, 3}, {16, 16}, {17, 31}, {31, 17}, {64, 5}, {5, 64}};

std::vector<float> normals(std::int64_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(rng.normal()));
  return x;
}

std::vector<double> wide(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

TEST(NewtonSchulz, FollowsTheReference) {
  for (const auto& [rows, columns] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << "x" << columns);
    std::vector<float> x = normals(rows * columns, 3),
                       scratch(static_cast<std::size_t>(muon_scratch_floats(rows, columns)), NAN);
    const auto want =
        newton_schulz_ref(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns), 5, wide(x));
    newton_schulz(rows, columns, 5, x.data(), scratch.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], want[i], 2e-4) << i;
  }
}

// On a diagonal matrix every singular value goes through the scalar quintic by itself.
TEST(NewtonSchulz, DiagonalGoesThroughTheQuintic) {
  const double values[] = {0.9, 0.3, 0.05, 0.3};
  std::vector<float> x(4 * 6, 0.0f), scratch(static_cast<std::size_t>(muon_scratch_floats(4, 6)));
  double norm = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    x[i * 6 + i] = static_cast<float>(values[i]);
    norm += values[i] * values[i];
  }
  newton_schulz(4, 6, 5, x.data(), scratch.data());
  for (std::size_t i = 0; i < 4; ++i) {
    double v = values[i] / std::sqrt(norm);
    for (int s = 0; s < 5; ++s)
      v = kNewtonSchulz[0] * v + kNewtonSchulz[1] * v * v * v + kNewtonSchulz[2] * v * v * v * v * v;
    EXPECT_NEAR(x[i * 6 + i], v, 1e-4);
    EXPECT_GT(v, 0.65);  // that is what the iteration is for
    EXPECT_LT(v, 1.25);
  }
  EXPECT_EQ(x[1], 0.0f);
}

TEST(NewtonSchulz, ZeroStaysZero) {
  std::vector<float> x(12, 0.0f), scratch(static_cast<std::size_t>(muon_scratch_floats(3, 4)));
  newton_schulz(3, 4, 5, x.data(), scratch.data());
  EXPECT_EQ(x, std::vector<float>(12, 0.0f));
}

TEST(Muon, FollowsTheReferenceOverSeveralUpdates) {
  for (const bool nesterov : {true, false}) {
    for (const MuonRate rate : {MuonRate::kMatchRmsAdamw, MuonRate::kOriginal}) {
      for (const auto& [rows, columns] : kShapes) {
        SCOPED_TRACE(testing::Message() << rows << "x" << columns << " " << nesterov);
        MuonOptions options;
        options.nesterov = nesterov;
        options.rate = rate;
        std::vector<float> w = normals(rows * columns, 1), momentum(w.size(), 0.0f),
                           scratch(static_cast<std::size_t>(muon_scratch_floats(rows, columns)), NAN);
        std::vector<double> w_ref = wide(w), momentum_ref(w.size(), 0.0);
        for (int t = 0; t < 4; ++t) {
          const std::vector<float> g = normals(rows * columns, 10 + static_cast<std::uint64_t>(t));
          muon(rows, columns, w.data(), g.data(), momentum.data(), 0.4, 0.02, options, scratch.data());
          muon_ref(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns), &w_ref, wide(g),
                   &momentum_ref, 0.4, 0.02, options);
        }
        for (std::size_t i = 0; i < w.size(); ++i) {
          ASSERT_NEAR(w[i], w_ref[i], 1e-4 * (1 + std::abs(w_ref[i]))) << i;
          ASSERT_NEAR(momentum[i], momentum_ref[i], 1e-6);
        }
      }
    }
  }
}

// What MuonRate::kMatchRmsAdamw promises: an update of root mean square near 0.2 * rate.
TEST(Muon, UpdateIsAsLargeAsAdamws) {
  const std::int64_t rows = 48, columns = 96;
  MuonOptions options;
  options.weight_decay = 0;
  std::vector<float> w(static_cast<std::size_t>(rows * columns), 0.0f), momentum(w.size(), 0.0f),
      scratch(static_cast<std::size_t>(muon_scratch_floats(rows, columns)));
  const std::vector<float> g = normals(rows * columns, 5);
  muon(rows, columns, w.data(), g.data(), momentum.data(), 1.0, 1.0, options, scratch.data());
  double sum = 0;
  for (const float v : w) sum += double{v} * v;
  const double rms = std::sqrt(sum / static_cast<double>(w.size()));
  EXPECT_NEAR(rms, 0.2, 0.05);
}

TEST(Muon, SameBitsAgain) {
  const std::int64_t rows = 33, columns = 65;
  const std::vector<float> g = normals(rows * columns, 5);
  std::vector<std::vector<float>> results;
  for (int run = 0; run < 2; ++run) {
    std::vector<float> w = normals(rows * columns, 1), momentum(w.size(), 0.0f),
                       scratch(static_cast<std::size_t>(muon_scratch_floats(rows, columns)));
    for (int t = 0; t < 3; ++t)
      muon(rows, columns, w.data(), g.data(), momentum.data(), 1.0, 0.1, {}, scratch.data());
    results.push_back(w);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace eaglet
