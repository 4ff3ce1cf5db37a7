#include "train/schedule.h"

#include <gtest/gtest.h>

namespace eaglet {
namespace {

// out.step_lr of the two golden AdamW files: lr 0.01, warm-up 2, 6 steps.
TEST(Schedule, LinearAndCosineMatchTheGoldenFiles) {
  Schedule schedule{Schedule::Kind::kCosine, 0.01, 2, 6, 0.5, 0};
  const double cosine[] = {0.0, 0.005, 0.01, 0.008535533905932738, 0.005, 0.0014644660940672626};
  const double linear[] = {0.0, 0.005, 0.01, 0.0075, 0.005, 0.0025};
  for (int step = 0; step < 6; ++step) EXPECT_NEAR(schedule.rate(step), cosine[step], 1e-15) << step;
  schedule.kind = Schedule::Kind::kLinear;
  for (int step = 0; step < 6; ++step) EXPECT_NEAR(schedule.rate(step), linear[step], 1e-15) << step;
}

TEST(Schedule, RateAfterAResumeAtStep200) {
  const Schedule schedule{Schedule::Kind::kLinear, 1e-4, 100, 1000, 0.5, 0};
  EXPECT_NEAR(schedule.rate(200), 8.888889e-05, 5e-12);
  EXPECT_NEAR(schedule.rate(201), 8.877778e-05, 5e-12);
  EXPECT_NEAR(schedule.rate(2), 2.0e-06, 1e-18);
  EXPECT_EQ(schedule.rate(1000), 0);
  EXPECT_EQ(schedule.rate(5000), 0);
}

TEST(Schedule, NoneKeepsTheRateAfterWarmUpAndTheFloorHolds) {
  const Schedule none{Schedule::Kind::kNone, 2.0, 4, 10, 0.5, 0};
  EXPECT_EQ(none.rate(0), 0);
  EXPECT_EQ(none.rate(2), 1.0);
  EXPECT_EQ(none.rate(4), 2.0);
  EXPECT_EQ(none.rate(1000000), 2.0);
  const Schedule floor{Schedule::Kind::kCosine, 1.0, 0, 10, 0.5, 0.1};
  EXPECT_EQ(floor.rate(0), 1.0);
  EXPECT_NEAR(floor.rate(10), 0.1, 1e-12);
}

TEST(Schedule, NamesAreChecked) {
  EXPECT_TRUE(parse_schedule_kind("linear").ok());
  EXPECT_EQ(parse_schedule_kind("Cosine").status().code(), StatusCode::kUsage);
}

}  // namespace
}  // namespace eaglet
