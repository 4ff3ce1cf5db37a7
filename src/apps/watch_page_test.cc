#include "apps/watch_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apps/svg_chart.h"

namespace eaglet::apps {
namespace {

using testing::HasSubstr;
using testing::Not;

monitor::Verdict verdict_at(double wall, monitor::Phase phase) {
  monitor::Verdict v;
  v.name = "k25-a";
  v.wall = wall;
  v.state.state = monitor::RunState::kRunning;
  v.state.phase = phase;
  v.activity.tree_cores = 2.5;
  v.step = 600;
  v.total_steps = 2400;
  v.eta_seconds = 5400;
  v.log_known = true;
  for (std::int64_t step = 0; step <= 600; step += 10) {
    v.log.metrics["loss_0"].push_back(
        {step, step / 10, 11 - 0.01 * static_cast<double>(step) + (step % 20 ? 0.3 : 0)});
    v.log.metrics["step_seconds"].push_back({step, step / 10, 0.9});
    v.log.metrics["forward_seconds"].push_back({step, step / 10, 0.3});
  }
  v.uniform_loss = std::log(32000);
  return v;
}

TEST(WatchPage, WhatTheCurvesShow) {
  WatchHistory history;
  double wall = 1e9;
  for (; wall < 1e9 + 60; ++wall) history.add(verdict_at(wall, monitor::Phase::kCompile));
  for (; wall < 1e9 + 120; ++wall) history.add(verdict_at(wall, monitor::Phase::kTrain));
  wall += 600;  // nobody watched
  for (int i = 0; i < 30; ++i) history.add(verdict_at(wall++, monitor::Phase::kTrain));
  ASSERT_EQ(history.phases().size(), 3u);
  EXPECT_EQ(history.phases()[0].to, history.phases()[1].from);
  EXPECT_TRUE(history.hole_between(1e9 + 119, 1e9 + 720));
  EXPECT_FALSE(history.hole_between(1e9, 1e9 + 100));
  const std::string page = watch_page_file(verdict_at(wall, monitor::Phase::kTrain), history);
  EXPECT_THAT(page, HasSubstr("a uniform guess: ln(32000) = 10.37"));
  EXPECT_THAT(page, HasSubstr("class=\"c0 faint\"")) << "raw values behind the running mean";
  EXPECT_THAT(page, HasSubstr("step 600  loss_0 5."));
  EXPECT_THAT(page, HasSubstr("seconds per step, and what takes them"));
  EXPECT_THAT(page, HasSubstr("forward_seconds 0.3"));
  EXPECT_THAT(page, HasSubstr("<title>compile: 1m00s</title>"));
  EXPECT_THAT(page, HasSubstr("class=\"band b-train\""));
  EXPECT_THAT(page, HasSubstr("<b>1h30m</b><span class=\"soft\">to go</span>"));
  EXPECT_THAT(page, Not(HasSubstr("<script"))) << "values show without one";
  EXPECT_LT(page.size(), 400000u);
}

TEST(WatchPage, AHoleBreaksTheCurve) {
  WatchHistory history;
  for (const double wall : {1000.0, 1001.0, 1002.0, 1500.0, 1501.0})
    history.add(verdict_at(wall, monitor::Phase::kTrain));
  const std::string page = watch_page_content(verdict_at(1501, monitor::Phase::kTrain), history);
  const std::string cores = page.substr(page.find(">CPU cores<"));
  const std::string path =
      cores.substr(cores.find(" d=\""), cores.find("\"/>", cores.find(" d=\"")) - cores.find(" d=\""));
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2) << path;
}

TEST(Chart, HeightsBandsAndValues) {
  const std::vector<Series> curves = {{.name = "a", .points = {{0, 1}, {10, 5}}},
                                      {.name = "b", .points = {{0, 2}, {10, 4}}}};
  Overlay overlay{.values = true};
  overlay.heights = {{3, "three"}, {9, "out of sight"}};
  overlay.bands = {{-5, 4, "load", "b-load"}, {20, 30, "later", "b-save"}};
  const std::string chart = line_chart("t", "step", curves, true, overlay);
  EXPECT_THAT(chart, HasSubstr(">three<"));
  EXPECT_THAT(chart, Not(HasSubstr("out of sight")));
  EXPECT_THAT(chart, HasSubstr("<title>load</title>"));
  EXPECT_THAT(chart, Not(HasSubstr("later")));
  EXPECT_THAT(chart, HasSubstr("step 10  a 5  b 4"));
  EXPECT_THAT(line_chart("t", "step", curves, true), Not(HasSubstr("class=\"hit\"")));
}

TEST(Chart, LargeValuesThatHardlyDiffer) {
  for (const double far : {1e16, 9e18, 1e300, -1e300}) {
    const std::vector<Series> curves = {
        {.name = "a", .points = {{far, far}, {std::nextafter(far, 1e308), far * 1.0000000000000002}}}};
    EXPECT_LT(line_chart("t", "step", curves, false, {.values = true}).size(), 10000u) << far;
  }
  const std::vector<Series> whole = {{.name = "a", .points = {{-1e308, -1e308}, {1e308, 1e308}}}};
  EXPECT_LT(line_chart("t", "step", whole, true).size(), 10000u);
}

TEST(Chart, ARunningMeanKeepsGaps) {
  const Series smooth = smoothed({.name = "a", .points = {{0, 4}, {1, std::nan("")}, {2, 8}, {3, 8}}}, 0.5);
  EXPECT_EQ(smooth.points[0].second, 4);
  EXPECT_TRUE(std::isnan(smooth.points[1].second));
  EXPECT_EQ(smooth.points[2].second, 6);
  EXPECT_EQ(smooth.points[3].second, 7);
}

}  // namespace
}  // namespace eaglet::apps
