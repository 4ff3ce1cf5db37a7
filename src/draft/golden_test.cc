#include <gtest/gtest.h>

#include "device/threads.h"
#include "draft/golden_checks_test.h"

namespace eaglet {
namespace {

TEST(golden, FolderIsThere) {
  EXPECT_GE(golden::files().size(), std::getenv("EAGLET_GOLDEN_DIR") == nullptr ? 29u : 1u);
}

TEST(golden, LossesAndMetrics) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    auto sums = golden::model_of(g)->step(g.inputs(), true);
    ASSERT_TRUE(sums.ok()) << sums.status().message();
    golden::check_losses(g, *sums);
  }
}

TEST(golden, EveryGradient) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    auto model = golden::model_of(g);
    ASSERT_TRUE(model->step(g.inputs(), true).ok());
    golden::check_gradients(g, *model);
  }
}

TEST(golden, PredictionsOfComputedRows) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    golden::check_predictions(g, *golden::model_of(g));
  }
}

TEST(golden, AdamwSteps) {
  int files_with_steps = 0;
  for (const std::string& path : golden::files()) {
    const golden::Golden g = golden::load(path);
    if (!golden::has_adamw_steps(g)) continue;
    SCOPED_TRACE(path);
    ++files_with_steps;
    golden::check_adamw_steps(g, nullptr);
  }
  if (std::getenv("EAGLET_GOLDEN_DIR") == nullptr) {
    EXPECT_EQ(files_with_steps, 2);
  }
}

TEST(golden, TwoRunsAreBitEqualAndThreadsAgree) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    const auto gradients = [&](int threads) {
      set_num_threads(threads);
      auto model = golden::model_of(g);
      EXPECT_TRUE(model->step(g.inputs(), true).ok());
      EXPECT_TRUE(model->step(g.inputs(), true).ok());  // what the first step left behind must not matter
      return model->gradients().to_host();
    };
    const std::vector<float> once = gradients(2), again = gradients(2), alone = gradients(1);
    set_num_threads(0);
    EXPECT_EQ(once, again);
    EXPECT_LE(golden::norm_of_difference(once.data(), alone.data(), once.size()),
              1e-6 * golden::norm(alone.data(), alone.size()));
  }
}

}  // namespace
}  // namespace eaglet
