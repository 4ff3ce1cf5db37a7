#include <gtest/gtest.h>

#include <cmath>

#include "device/threads.h"
#include "draft/golden_file.h"

namespace eaglet {
namespace {

struct StepResult {
  StepSums sums, measured;
  std::vector<float> gradients;
};

StepResult step_of(const golden::Golden& g, ComputeType type) {
  TttOptions options = g.options;
  options.compute_type = type;
  auto model = DraftModel::create(g.weights, g.verifier(), options,
                                  static_cast<std::int64_t>(g.input_ids.size()), true);
  EXPECT_TRUE(model.ok()) << model.status().message();
  auto measured = (*model)->step(g.inputs(), false);
  auto sums = (*model)->step(g.inputs(), true);
  EXPECT_TRUE(measured.ok() && sums.ok());
  return {*sums, *measured, (*model)->gradients().to_host()};
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

// bf16 keeps 8 bits of a number: the loss agrees to a percent or so, the gradient points the same way.
TEST(golden, Bf16StepsPointWhereF32StepsPoint) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    const StepResult exact = step_of(g, ComputeType::kF32), rounded = step_of(g, ComputeType::kBf16);
    const double loss = exact.sums.loss(g.options.step_decay);
    EXPECT_NEAR(rounded.sums.loss(g.options.step_decay), loss, 0.02 * std::abs(loss) + 1e-6);
    const double size =
        std::sqrt(dot(exact.gradients, exact.gradients) * dot(rounded.gradients, rounded.gradients));
    if (size > 0) {
      EXPECT_GT(dot(exact.gradients, rounded.gradients) / size, 0.998);
    }
  }
}

// Measuring is fp32 whatever training multiplies in.
TEST(golden, StepsWithoutGradientsAreExactInEveryType) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    const StepResult exact = step_of(g, ComputeType::kF32), rounded = step_of(g, ComputeType::kBf16);
    for (std::size_t k = 0; k < exact.measured.depth.size(); ++k) {
      EXPECT_EQ(rounded.measured.depth[k].loss, exact.measured.depth[k].loss);
      EXPECT_EQ(rounded.measured.depth[k].full_right, exact.measured.depth[k].full_right);
    }
  }
}

TEST(golden, Bf16RunsAreBitEqualAndThreadsAgree) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    set_num_threads(2);
    const std::vector<float> once = step_of(g, ComputeType::kBf16).gradients;
    const std::vector<float> again = step_of(g, ComputeType::kBf16).gradients;
    set_num_threads(1);
    const std::vector<float> alone = step_of(g, ComputeType::kBf16).gradients;
    set_num_threads(0);
    EXPECT_EQ(once, again);
    double difference = 0;
    for (std::size_t i = 0; i < once.size(); ++i)
      difference += (double{once[i]} - alone[i]) * (double{once[i]} - alone[i]);
    // A sum that differs in its last bit can round to the other neighbour in bf16.
    EXPECT_LE(std::sqrt(difference), 1e-3 * std::sqrt(dot(alone, alone)) + 1e-12);
  }
}

}  // namespace
}  // namespace eaglet
