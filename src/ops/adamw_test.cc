#include "ops/adamw.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace eaglet {
namespace {

struct State {
  std::vector<float> w, m, v;
};

State random_state(std::int64_t n, std::uint64_t seed) {
  Rng rng(seed);
  State state;
  for (std::int64_t i = 0; i < n; ++i) {
    state.w.push_back(static_cast<float>(rng.normal()));
    state.m.push_back(0);
    state.v.push_back(0);
  }
  return state;
}

std::vector<float> random_gradient(std::int64_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> g;
  for (std::int64_t i = 0; i < n; ++i)
    g.push_back(static_cast<float>(rng.normal() * std::exp(rng.normal() * 3)));
  return g;
}

// The formula of the header, in double, one element at a time.
void plain_adamw(std::vector<double>& w, std::vector<double>& m, std::vector<double>& v,
                 const std::vector<float>& g, double scale, double lr, int t, const AdamwOptions& o) {
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double gradient = g[i] * scale;
    w[i] *= 1 - lr * o.weight_decay;
    m[i] = o.beta1 * m[i] + (1 - o.beta1) * gradient;
    v[i] = o.beta2 * v[i] + (1 - o.beta2) * gradient * gradient;
    const double step_size = lr / (1 - std::pow(o.beta1, t));
    w[i] -= step_size * m[i] / (std::sqrt(v[i] / (1 - std::pow(o.beta2, t))) + o.eps);
  }
}

TEST(Adamw, FollowsThePlainFormulaOverSeveralUpdates) {
  const AdamwOptions options{0.9, 0.95, 1e-8, 0.1};
  for (std::int64_t n : {1, 3, 7, 8, 9, 31, 16383, 16385, 50021}) {
    State fast = random_state(n, 5);
    std::vector<double> w(fast.w.begin(), fast.w.end()), m(w.size(), 0), v(w.size(), 0);
    for (int t = 1; t <= 8; ++t) {
      const std::vector<float> g = random_gradient(n, 100 + static_cast<std::uint64_t>(t));
      const double lr = 0.01 * t;
      adamw(n, fast.w.data(), g.data(), fast.m.data(), fast.v.data(), 0.37, lr, t, options);
      plain_adamw(w, m, v, g, 0.37, lr, t, options);
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      ASSERT_NEAR(fast.w[i], w[i], 2e-6 * (1 + std::abs(w[i]))) << n << " at " << i;
      ASSERT_NEAR(fast.v[i], v[i], 1e-5 * v[i] + 1e-30);
    }
  }
}

// torch.optim.AdamW by hand: w 1, g 0.5, lr 0.1, betas 0.9/0.999, weight decay 0.01. In the first update
// m^/(sqrt(v^)+eps) is the gradient's sign, so w = 1*(1-0.001) - 0.1 = 0.899.
TEST(Adamw, FirstUpdateMovesByTheRate) {
  float w = 1, g = 0.5f, m = 0, v = 0;
  adamw(1, &w, &g, &m, &v, 1.0, 0.1, 1, AdamwOptions{});
  EXPECT_NEAR(w, 0.899, 1e-6);
  EXPECT_FLOAT_EQ(m, 0.05f);
  EXPECT_NEAR(v, 0.00025, 1e-9);
}

TEST(Adamw, RateZeroMovesOnlyTheMoments) {
  State state = random_state(100, 3);
  const std::vector<float> before = state.w, g = random_gradient(100, 4);
  adamw(100, state.w.data(), g.data(), state.m.data(), state.v.data(), 1.0, 0.0, 1, AdamwOptions{});
  EXPECT_EQ(state.w, before);
  EXPECT_NE(state.m[0], 0);
}

TEST(Adamw, SameBitsForAnyThreadCount) {
  const std::int64_t n = 200003;
  const std::vector<float> g = random_gradient(n, 9);
  std::vector<State> states;
  std::vector<double> norms;
  const int threads_before = omp_get_max_threads();
  for (int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    State state = random_state(n, 8);
    for (int t = 1; t <= 3; ++t)
      adamw(n, state.w.data(), g.data(), state.m.data(), state.v.data(), 0.5, 0.01, t, AdamwOptions{});
    norms.push_back(l2_norm(n, g.data()));
    states.push_back(std::move(state));
  }
  omp_set_num_threads(threads_before);
  for (std::size_t i = 1; i < states.size(); ++i) {
    EXPECT_EQ(states[i].w, states[0].w);
    EXPECT_EQ(states[i].v, states[0].v);
    EXPECT_EQ(norms[i], norms[0]);
  }
}

TEST(L2Norm, MatchesAPlainSumAndSeesNan) {
  for (std::int64_t n : {0, 1, 5, 16384, 16385, 100001}) {
    std::vector<float> g = random_gradient(n, 77);
    double sum = 0;
    for (float x : g) sum += static_cast<double>(x) * x;
    EXPECT_NEAR(l2_norm(n, g.data()), std::sqrt(sum), 1e-10 * std::sqrt(sum));
    if (n == 0) continue;
    g[static_cast<std::size_t>(n - 1)] = NAN;
    EXPECT_TRUE(std::isnan(l2_norm(n, g.data())));
  }
}

}  // namespace
}  // namespace eaglet
