#include <algorithm>

#include "ops/device_test.h"
#include "ops/loss_row.h"
#include "ops/loss_row_ref.h"
#include "ops/loss_rows_cuda.h"
#include "ops/ops_test_util.h"

namespace eaglet {
namespace {

using cuda::TeacherFacts;
using test::Complex;
using test::DeviceArray;
using test::DeviceFloats;
using test::DeviceInts;
using test::random_floats;
using test::relative_difference;
using test::widen;

class LossRowsOnDevice : public test::OnDevice {};

struct Result3 {
  std::vector<float> loss, gradient;
  std::vector<std::int32_t> best;
};

// Rows of z against teacher rows by number, all through the device.
Result3 solve(const std::vector<LossTerm>& terms, std::int64_t n, const std::vector<float>& teacher_logits,
              const std::vector<float>& z, const std::vector<std::int32_t>& teacher,
              const std::vector<float>& weight, bool outside = false) {
  const auto teachers = static_cast<std::int64_t>(teacher_logits.size()) / n;
  const DeviceFloats logits(teacher_logits), p(teachers * n), weight_(weight);
  const DeviceArray<TeacherFacts> facts(std::vector<TeacherFacts>(static_cast<std::size_t>(teachers)));
  cuda::teacher_rows(teachers, n, logits.data(), p.data(), facts.data());
  if (outside) {
    std::vector<TeacherFacts> changed = facts.read();
    for (TeacherFacts& f : changed) f.best_is_outside = 1;
    test::accelerator()->to_device(facts.data(), changed.data(), changed.size() * sizeof(TeacherFacts));
  }
  const DeviceInts teacher_(teacher);
  const auto rows = static_cast<std::int64_t>(teacher.size());
  std::vector<std::int32_t> best;
  const auto results = test::twice([&] {
    const DeviceFloats z_(z), loss(rows);
    const DeviceInts best_(std::vector<std::int32_t>(teacher.size(), -1));
    cuda::loss_rows(terms, rows, {n, logits.data(), p.data(), facts.data()}, teacher_.data(), weight_.data(),
                    z_.data(), loss.data(), best_.data());
    best = best_.read();
    return std::vector<std::vector<float>>{loss.read(), z_.read()};
  });
  return {results[0], results[1], best};
}

std::vector<float> row_of(const std::vector<float>& all, std::int64_t n, std::int64_t row) {
  return std::vector<float>(all.begin() + row * n, all.begin() + (row + 1) * n);
}

TEST_F(LossRowsOnDevice, TeachersAreTheHosts) {
  for (const std::int64_t n : {1L, 31L, 257L, 1000L}) {
    SCOPED_TRACE(n);
    std::vector<float> logits = random_floats(3 * n, 1, 4.0);
    if (n > 40) logits[5] = logits[40] = 30.0f;  // two that are best: the first is taken
    const DeviceFloats logits_(logits), p_(3 * n);
    const DeviceArray<TeacherFacts> facts_(std::vector<TeacherFacts>(3));
    cuda::teacher_rows(3, n, logits_.data(), p_.data(), facts_.data());
    const std::vector<float> p = p_.read();
    const std::vector<TeacherFacts> facts = facts_.read();
    for (std::int64_t r = 0; r < 3; ++r) {
      std::vector<float> wanted(static_cast<std::size_t>(n));
      const TeacherRow row = teacher_row(logits.data() + r * n, n, wanted.data());
      const TeacherFacts& f = facts[static_cast<std::size_t>(r)];
      EXPECT_LT(relative_difference(row_of(p, n, r), wanted), 1e-6);
      EXPECT_EQ(f.best, row.best);
      EXPECT_NEAR(f.entropy_term, row.entropy_term, 1e-5);
      EXPECT_NEAR(f.log_sum_exp, row.log_sum_exp, 1e-5);
      EXPECT_EQ(f.mass, 1.0f);
    }
  }
}

TEST_F(LossRowsOnDevice, EveryKindAgreesWithAComplexStep) {
  for (const std::int64_t n : {2L, 33L, 131L, 300L})
    for (const LossKind kind :
         {LossKind::kKl, LossKind::kRkl, LossKind::kJsd, LossKind::kCe, LossKind::kTv, LossKind::kNla}) {
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << " n " << n);
      const std::vector<float> teacher = random_floats(2 * n, 1, 2.0), draft = random_floats(3 * n, 2, 2.0);
      const std::vector<std::int32_t> of_row = {1, 0, 1};
      const Result3 got = solve({{kind, 1.0}}, n, teacher, draft, of_row, {1.0f, 0.25f, 0.0f});
      for (std::int64_t r = 0; r < 3; ++r) {
        const std::vector<double> t = widen<double>(row_of(teacher, n, of_row[static_cast<std::size_t>(r)]));
        const std::vector<float> z = row_of(draft, n, r);
        const auto loss = [&](const std::vector<Complex>& v) { return ref::loss_row(kind, t, v); };
        const double want = loss(widen<Complex>(z)).real();
        EXPECT_NEAR(got.loss[static_cast<std::size_t>(r)], want, 3e-6 * std::max(1.0, std::abs(want)));
        EXPECT_EQ(got.best[static_cast<std::size_t>(r)], std::max_element(z.begin(), z.end()) - z.begin());
        std::vector<double> gradient = test::complex_step_gradient(loss, widen<Complex>(z));
        const double weight = r == 0 ? 1.0 : r == 1 ? 0.25 : 0.0;
        for (double& g : gradient) g *= weight;
        EXPECT_LT(relative_difference(row_of(got.gradient, n, r), gradient), 2e-5);
      }
    }
}

// lk_hybrid, whose mixing weight is held fixed, and a sum of everything, against the host's rows.
TEST_F(LossRowsOnDevice, SumsOfTermsAreTheHosts) {
  const std::int64_t n = 290;
  const std::vector<std::vector<LossTerm>> lists = {{{LossKind::kLkHybrid, 1.0}},
                                                    {{LossKind::kKl, 0.5}},
                                                    {{LossKind::kKl, 0.3},
                                                     {LossKind::kCe, 0.1},
                                                     {LossKind::kTv, 0.9},
                                                     {LossKind::kRkl, 0.2},
                                                     {LossKind::kJsd, 0.7},
                                                     {LossKind::kNla, 0.4},
                                                     {LossKind::kLkHybrid, 0.6},
                                                     {LossKind::kCe, 0.2}}};
  const std::vector<float> teacher = random_floats(n, 1, 2.0), draft = random_floats(n, 2, 2.0);
  for (const std::vector<LossTerm>& terms : lists)
    for (const bool outside : {false, true}) {
      SCOPED_TRACE(testing::Message() << terms.size() << " terms" << (outside ? ", outside" : ""));
      std::vector<float> p(teacher.size()), z = draft, scratch(2 * teacher.size());
      TeacherRow row = teacher_row(teacher.data(), n, p.data());
      row.best_is_outside = outside;
      std::int64_t best = 0;
      const float loss = loss_row(terms, row, n, 0.5f, z.data(), scratch.data(), &best);
      const Result3 got = solve(terms, n, teacher, draft, {0}, {0.5f}, outside);
      EXPECT_NEAR(got.loss[0], loss, 1e-5 * std::max(1.0f, std::abs(loss)));
      EXPECT_LT(relative_difference(got.gradient, z), 2e-5);
      EXPECT_EQ(got.best[0], best);
    }
}

TEST_F(LossRowsOnDevice, LogitsBeyondTheRangeOfExpAreFine) {
  const Result3 got =
      solve({{LossKind::kKl, 1.0}}, 3, {500.0f, -500.0f, 0.0f}, {-300.0f, 400.0f, 0.0f}, {0}, {1.0f});
  EXPECT_NEAR(got.loss[0], 700.0, 1e-2);
  EXPECT_NEAR(got.gradient[0], -1.0, 1e-6);
  EXPECT_NEAR(got.gradient[1], 1.0, 1e-6);
}

}  // namespace
}  // namespace eaglet
