#include "monitor/series_stats.h"

#include <gtest/gtest.h>

#include <cmath>

namespace eaglet::monitor {
namespace {

TEST(WithExtremes, SpikesAndNanSurvive) {
  std::vector<MetricSample> samples;
  for (std::int64_t i = 0; i < 10000; ++i)
    samples.push_back({i, i, 3.0 + 0.0001 * static_cast<double>(i % 7)});
  samples[4321].value = 99;
  samples[7000].value = -5;
  samples[9123].value = NAN;
  const auto few = with_extremes(samples, 200);
  EXPECT_LE(few.size(), 200u);
  double most = -1e9, least = 1e9;
  bool bad = false;
  for (std::size_t i = 0; i < few.size(); ++i) {
    if (i > 0) {
      EXPECT_GT(few[i].step, few[i - 1].step) << "in their order";
    }
    bad = bad || std::isnan(few[i].value);
    if (std::isnan(few[i].value)) continue;
    most = std::max(most, few[i].value);
    least = std::min(least, few[i].value);
  }
  EXPECT_EQ(most, 99);
  EXPECT_EQ(least, -5);
  EXPECT_TRUE(bad);
  EXPECT_EQ(with_extremes(samples, 20000).size(), samples.size());
  EXPECT_TRUE(with_extremes({}, 10).empty());
}

}  // namespace
}  // namespace eaglet::monitor
