#include "ops/head_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/threads.h"
#include "ops/loss_row.h"
#include "ops/loss_row_ref.h"
#include "ops/ops_test_util.h"

namespace eaglet {
namespace {

using test::Complex;
using test::random_floats;
using test::relative_difference;
using test::widen;

const LossKind kKinds[] = {LossKind::kKl, LossKind::kRkl, LossKind::kJsd,
                           LossKind::kCe, LossKind::kTv,  LossKind::kNla};

struct RowResult {
  float loss;
  std::vector<float> gradient;
};

RowResult fast_row(const std::vector<LossTerm>& terms, const std::vector<float>& teacher,
                   const std::vector<float>& draft) {
  const auto n = static_cast<std::int64_t>(teacher.size());
  std::vector<float> p(teacher.size()), z = draft, scratch(2 * teacher.size());
  const TeacherRow row = teacher_row(teacher.data(), n, p.data());
  std::int64_t best = 0;
  const float loss = loss_row(terms, row, n, 1.0f, z.data(), scratch.data(), &best);
  EXPECT_EQ(best, std::max_element(draft.begin(), draft.end()) - draft.begin());
  return {loss, z};
}

TEST(LossRow, EveryKindAgreesWithAComplexStep) {
  for (const std::int64_t n : {1L, 2L, 17L, 131L})
    for (const LossKind kind : kKinds) {
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << " n " << n);
      const std::vector<float> teacher = random_floats(n, 1, 2.0), draft = random_floats(n, 2, 2.0);
      const std::vector<double> teacher_wide = widen<double>(teacher);
      const auto loss = [&](const std::vector<Complex>& z) { return ref::loss_row(kind, teacher_wide, z); };
      const RowResult got = fast_row({{kind, 1.0}}, teacher, draft);
      const double want = loss(widen<Complex>(draft)).real();
      EXPECT_NEAR(got.loss, want, 2e-6 * std::max(1.0, std::abs(want)));
      const std::vector<double> gradient = test::complex_step_gradient(loss, widen<Complex>(draft));
      if (n > 1) {
        EXPECT_LT(relative_difference(got.gradient, gradient), 2e-5);
      }
    }
}

TEST(LossRow, HybridHoldsItsMixingWeightFixed) {
  const std::vector<float> teacher = random_floats(23, 3, 2.0), draft = random_floats(23, 4, 2.0);
  const std::vector<double> tw = widen<double>(teacher);
  const std::vector<double> log_p = ref::log_softmax(tw);
  const double a = ref::overlap(log_p, ref::log_softmax(widen<double>(draft))), l = std::exp(-3 * a);
  const auto loss = [&](const std::vector<Complex>& z) {
    return l * ref::loss_row(LossKind::kKl, tw, z) + (1 - l) * ref::loss_row(LossKind::kTv, tw, z);
  };
  const RowResult got = fast_row({{LossKind::kLkHybrid, 1.0}}, teacher, draft);
  EXPECT_NEAR(got.loss, loss(widen<Complex>(draft)).real(), 1e-5);
  EXPECT_LT(relative_difference(got.gradient, test::complex_step_gradient(loss, widen<Complex>(draft))),
            2e-5);
}

TEST(LossRow, SurvivesLogitsBeyondTheRangeOfExp) {
  const RowResult got = fast_row({{LossKind::kKl, 1.0}}, {500.0f, -500.0f, 0.0f}, {-300.0f, 400.0f, 0.0f});
  EXPECT_NEAR(got.loss, 700.0, 1e-2);
  EXPECT_NEAR(got.gradient[0], -1.0, 1e-6);
  EXPECT_NEAR(got.gradient[1], 1.0, 1e-6);
}

// Three steps over more teacher rows than one chunk holds; some rows are metric only, some steps miss rows.
struct Problem {
  HeadLossShape shape{12, 10, 29, 3, 0};
  std::int64_t teachers = 300;
  std::vector<float> states = random_floats(300 * 10, 1), verifier_head = random_floats(29 * 10, 2),
                     head = random_floats(29 * 12, 3);
  std::vector<std::vector<float>> xs, weight;
  std::vector<std::vector<std::int32_t>> teacher;
  Problem() {
    for (std::int32_t k = 0; k < 3; ++k) {
      std::vector<std::int32_t> rows;
      std::vector<float> weights;
      for (std::int32_t t = k; t < 300; t += 1 + (k == 2 ? t % 2 : 0)) {
        rows.push_back(t);
        weights.push_back(t % 7 == 0 ? 0.0f : 0.01f * static_cast<float>(k + 1));
      }
      xs.push_back(
          random_floats(static_cast<std::int64_t>(rows.size()) * 12, 10 + static_cast<std::uint64_t>(k)));
      teacher.push_back(rows);
      weight.push_back(weights);
    }
  }
};

struct Answer {
  std::vector<std::vector<float>> loss, d_xs;
  std::vector<float> d_head = std::vector<float>(29 * 12, 0.0f);
};

Answer solve(const Problem& p) {
  Answer a;
  std::vector<std::vector<std::int32_t>> best;
  std::vector<std::int32_t> teacher_best(300);
  HeadLossInputs in;
  HeadLossOutputs out;
  for (std::size_t k = 0; k < 3; ++k) {
    a.loss.emplace_back(p.teacher[k].size());
    a.d_xs.emplace_back(p.xs[k].size());
    best.emplace_back(p.teacher[k].size());
  }
  in.num_teachers = p.teachers;
  in.teacher_states = p.states.data();
  ProductWorkspace products;
  LinearWeight verifier_head(29, 10, 10, {ComputeType::kF32, true, false}, &products);
  LinearWeight head(29, 12, 12, {}, &products);
  verifier_head.load(p.verifier_head.data());
  head.load(p.head.data());
  in.verifier_head = &verifier_head;
  in.head = &head;
  for (std::size_t k = 0; k < 3; ++k) {
    in.xs.push_back(p.xs[k].data());
    in.teacher.push_back(&p.teacher[k]);
    in.weight.push_back(&p.weight[k]);
    out.loss.push_back(a.loss[k].data());
    out.best.push_back(best[k].data());
    out.d_xs.push_back(a.d_xs[k].data());
  }
  out.teacher_best = teacher_best.data();
  out.d_head = a.d_head.data();
  std::vector<float> scratch(static_cast<std::size_t>(head_loss_scratch_floats(p.shape, num_threads())),
                             std::nanf(""));
  HeadLossWorkspace workspace;
  head_loss(p.shape, {LossTerm{}}, in, out, scratch.data(), &workspace);
  return a;
}

TEST(HeadLoss, ChunksGiveWhatRowsGive) {
  const Problem p;
  const Answer got = solve(p);
  std::vector<double> d_head(29 * 12, 0.0);
  for (std::size_t k = 0; k < 3; ++k) {
    std::vector<double> d_xs, losses;
    for (std::size_t e = 0; e < p.teacher[k].size(); ++e) {
      const float* x = p.xs[k].data() + e * 12;
      std::vector<float> z(29), t(29);
      for (std::size_t v = 0; v < 29; ++v) {
        for (std::size_t j = 0; j < 12; ++j) z[v] += x[j] * p.head[v * 12 + j];
        for (std::size_t j = 0; j < 10; ++j)
          t[v] += p.states[static_cast<std::size_t>(p.teacher[k][e]) * 10 + j] * p.verifier_head[v * 10 + j];
      }
      const RowResult row = fast_row({LossTerm{}}, t, z);
      losses.push_back(row.loss);
      for (std::size_t j = 0; j < 12; ++j) {
        double sum = 0;
        for (std::size_t v = 0; v < 29; ++v) {
          const double g = static_cast<double>(row.gradient[v]) * p.weight[k][e];
          sum += g * p.head[v * 12 + j];
          d_head[v * 12 + j] += g * x[j];
        }
        d_xs.push_back(sum);
      }
    }
    EXPECT_LT(relative_difference(got.loss[k], losses), 1e-5);
    EXPECT_LT(relative_difference(got.d_xs[k], d_xs), 1e-5);
  }
  EXPECT_LT(relative_difference(got.d_head, d_head), 1e-5);
}

TEST(HeadLoss, BestOverVocabIsTheArgmax) {
  const std::vector<float> states = random_floats(70 * 6, 30), head = random_floats(41 * 6, 31);
  std::vector<std::int32_t> best(70);
  std::vector<float> scratch(static_cast<std::size_t>(best_over_vocab_scratch_floats(41)));
  best_over_vocab(70, 6, 41, states.data(), head.data(), best.data(), scratch.data());
  for (std::size_t r = 0; r < 70; ++r) {
    double top = -1e30;
    std::int32_t at = -1;
    for (std::int32_t v = 0; v < 41; ++v) {
      double z = 0;
      for (std::size_t j = 0; j < 6; ++j)
        z += static_cast<double>(states[r * 6 + j]) * head[static_cast<std::size_t>(v) * 6 + j];
      if (z > top) top = z, at = v;
    }
    EXPECT_EQ(best[r], at);
  }
}

}  // namespace
}  // namespace eaglet
