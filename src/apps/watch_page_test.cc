#include "apps/watch_page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "apps/source_hash.h"
#include "apps/svg_chart.h"
#include "base/files.h"

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
  EXPECT_THAT(page, HasSubstr("step 0.9  forward 0.3"));
  EXPECT_THAT(page, HasSubstr("<title>compile: 1m00s</title>"));
  EXPECT_THAT(page, HasSubstr("class=\"band b-train\""));
  EXPECT_THAT(page, HasSubstr("<b>1h30m</b><span class=\"soft\">to go</span>"));
  EXPECT_THAT(page, HasSubstr("<script>")) << "for another axis and for zooming; values show without one";
  EXPECT_THAT(page, Not(HasSubstr("src="))) << "all is inside";
  EXPECT_THAT(page, HasSubstr("data-unit=\"step\"")) << "what the script draws from";
  EXPECT_THAT(page, Not(HasSubstr("unsafe-inline")));
  for (const std::string tag : {"style", "script"}) {
    const std::size_t from = page.find("<" + tag + ">") + tag.size() + 2;
    const std::string inside = page.substr(from, page.find("</" + tag + ">") - from);
    EXPECT_THAT(page, HasSubstr(tag + "-src " + source_hash(inside))) << "no other one runs";
  }
  EXPECT_LT(page.size(), 400000u);
}

/// What stands in that attribute.
std::string attribute(const std::string& page, const std::string& name) {
  const std::size_t at = page.find(name + "=\"");
  return at == std::string::npos
             ? ""
             : page.substr(at + name.size() + 2, page.find('"', at + name.size() + 2) - at - name.size() - 2);
}

TEST(WatchPage, HashesAsABrowserComputesThem) {
  // Of the standard's examples, in base64; lengths around a block's end.
  EXPECT_EQ(source_hash(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
  EXPECT_EQ(source_hash("abc"), "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='");
  const std::string digits = "0123456789012345678901234567890123456789012345678901234567890123456789";
  EXPECT_EQ(source_hash(digits.substr(0, 55)), "'sha256-801aD4DAy/hMjAuQIYwiY3q9GZllJJ2nNqIBQ8jJydk='");
  EXPECT_EQ(source_hash(digits.substr(0, 56)), "'sha256-g6oDS9qD5Fig3Jy84NTjVHFqoP93DtN6wO0rKSBS5K8='");
  EXPECT_EQ(source_hash(digits), "'sha256-V0RfpAsIxgzcunyjnHVt5hTRFILj8VqSX1SGiMGeWPQ='");
}

TEST(WatchPage, HowLongAFindingHasStood) {
  WatchHistory history;
  monitor::Verdict v = verdict_at(1000, monitor::Phase::kTrain);
  v.judgements = {monitor::hardware_judgement("power", monitor::Level::kOk, "computing"),
                  monitor::hardware_judgement("disk", monitor::Level::kOk, "free")};
  history.add(v);
  v.wall = 1060;
  v.judgements[0].level = monitor::Level::kWarn;
  history.add(v);
  v.wall = 1150;
  history.add(v);
  const std::string page = watch_page_content(v, history);
  EXPECT_THAT(page, HasSubstr("<td>computing</td><td class=\"soft\">1m30s</td>"));
  EXPECT_THAT(page, HasSubstr("<td>free</td><td class=\"soft\">2m30s</td>"));
  EXPECT_TRUE(std::isnan(history.level_since("never")));
}

TEST(WatchPage, WhenWhichStepWas) {
  WatchHistory history;
  monitor::Verdict v = verdict_at(1e9, monitor::Phase::kTrain);
  v.step = 600;
  history.add(v);
  v.wall = 1e9 + 10;
  v.step = 620;
  history.add(v);
  EXPECT_EQ(attribute(watch_page_content(v, history), "data-times"), "600 1000000000.0 620 1000000010.0 ")
      << "a log without times: as it was watched";
  EXPECT_EQ(attribute(watch_page_content(v, history), "data-epoch"), "1000000000.0");
  v.log.metrics["printed_seconds"] = {
      {0, 1, 9.5e8}, {10, 2, 9.5e8 + 60}, {20, 3, 9.5e8 + 30}, {30, 4, 9.5e8 + 90}};
  EXPECT_EQ(attribute(watch_page_content(v, history), "data-times"),
            "0 950000000.0 10 950000060.0 30 950000090.0 ")
      << "a clock that was set back counts no more than once";
  v.log.metrics["printed_seconds"] = {{0, 1, 33300}, {10, 2, 33360}};
  v.activity.log_silent_seconds = 4;
  EXPECT_EQ(attribute(watch_page_content(v, history), "data-times"), "0 999999946.0 10 1000000006.0 ")
      << "09:16:00 without a date is four seconds ago, as the log's age says";
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

TEST(Chart, ALegendOfManyNamesTakesMoreRows) {
  const auto chart_of = [](int curves) {
    std::vector<Series> all;
    for (int i = 0; i < curves; ++i)
      all.push_back({.name = "elementwise" + std::to_string(i), .points = {{0, 1}, {1, 2}}});
    return line_chart("t", "step", all, true);
  };
  EXPECT_THAT(chart_of(3), HasSubstr("viewBox=\"0 0 560 260\""));
  const std::string many = chart_of(10);
  EXPECT_THAT(many, HasSubstr("viewBox=\"0 0 560 292\"")) << "two rows more";
  const std::regex key("x=\"([0-9]+)\" y=\"[0-9]+\">elementwise[0-9]");
  int names = 0;
  for (auto at = std::sregex_iterator(many.begin(), many.end(), key); at != std::sregex_iterator(); ++at) {
    ++names;
    EXPECT_LE(std::stod((*at)[1]) + 12 * 6.5, 560);
  }
  EXPECT_EQ(names, 10);
}

TEST(Chart, EveryCurveHasAColour) {
  std::vector<Series> sixteen;  // drafting steps, or GPUs
  for (int i = 0; i < 16; ++i) sixteen.push_back({.name = "l", .points = {{0, 1}, {1, 2}}});
  const std::string chart = line_chart("t", "step", sixteen, true);
  const auto report_page = read_file(EAGLET_TESTDATA "/../src/apps/report.html");
  ASSERT_TRUE(report_page.ok());
  const std::regex path("path class=\"c([0-9]+)\"");
  int curves = 0;
  for (auto at = std::sregex_iterator(chart.begin(), chart.end(), path); at != std::sregex_iterator(); ++at) {
    ++curves;
    for (const char* form :
         {"path.c{0} {{ stroke: var(--c{0}); }}", "circle.c{0} {{ fill: var(--c{0}); }}"}) {
      const std::string rule = fmt::format(fmt::runtime(form), at->str(1));
      EXPECT_THAT(watch_page_style(), HasSubstr(rule));
      EXPECT_THAT(*report_page, HasSubstr(rule));
    }
  }
  EXPECT_EQ(curves, 16);
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
  EXPECT_EQ(smooth.points[0].second, 5);
  EXPECT_TRUE(std::isnan(smooth.points[1].second));
  EXPECT_EQ(smooth.points[2].second, 7);
  EXPECT_EQ(smooth.points[3].second, 7.5);
}

}  // namespace
}  // namespace eaglet::apps
