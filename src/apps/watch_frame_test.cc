#include "apps/watch_frame.h"

#include <gtest/gtest.h>

#include <cmath>

#include "apps/device_time_text.h"
#include "apps/watch_page.h"
#include "monitor/saved_views.h"
#include "monitor/text_scan.h"

namespace eaglet::apps {
namespace {

monitor::Verdict judged(const std::string& folder) {
  const auto series = monitor::read_saved_views({EAGLET_TESTDATA "/" + folder});
  EXPECT_TRUE(series.ok()) << series.status().message();
  return series.ok() ? monitor::make_verdict(*series, monitor::Thresholds()) : monitor::Verdict();
}

TEST(WatchFrame, FitsEveryScreen) {
  for (const char* folder :
       {"watch/section0/run2", "cases/16-alive-stuck-or-dead/b", "cases/16-alive-stuck-or-dead/d"}) {
    const monitor::Verdict verdict = judged(folder);
    WatchHistory history;
    for (int i = 0; i < 300; ++i) history.add(verdict);
    for (const auto& [columns, rows] : {std::pair{80, 24}, {40, 10}, {200, 60}, {20, 3}})
      for (const auto page : {FrameStyle::Page::kOverview, FrameStyle::Page::kLog, FrameStyle::Page::kEvents,
                              FrameStyle::Page::kDevices})
        for (const bool ascii : {false, true}) {
          FrameStyle style;
          style.columns = columns;
          style.rows = rows;
          style.page = page;
          style.ascii = ascii;
          const auto lines = watch_frame(verdict, history, style);
          ASSERT_EQ(lines.size(), static_cast<std::size_t>(rows));
          for (const std::string& line : lines) {
            EXPECT_LE(monitor::columns(line), static_cast<std::size_t>(columns)) << line;
            for (const char c : line) EXPECT_TRUE(!ascii || static_cast<unsigned char>(c) < 0x80) << line;
          }
          EXPECT_EQ(lines[0].rfind(state_word(verdict.state.state), 0), 0u)
              << "the first line is the verdict";
        }
  }
}

TEST(WatchFrame, TheDevicesTimeByOpIsThatOfTheNewestMeasuredStep) {
  monitor::Verdict verdict;
  EXPECT_EQ(device_time_text(verdict), "");
  auto& metrics = verdict.log.metrics;
  for (std::int64_t i = 1; i <= 2; ++i) {
    metrics["step_seconds"].push_back({i, i, 0.5});
    metrics["data_wait_seconds"].push_back({i, i, 0.01});
    metrics["device_products_seconds"].push_back({i, i, 0.1 * static_cast<double>(i)});
  }
  metrics["device_copies_seconds"].push_back({1, 1, 0.2});  // none in the newest
  metrics["device_attention_seconds"].push_back({2, 2, 0.25});
  EXPECT_EQ(device_time_text(verdict), "attention 50 %, products 40 % of a step; waits for data 2.0 %");
  metrics["mfu_ratio"].push_back({2, 2, 0.41});
  verdict.activity.devices.resize(1);
  verdict.activity.devices[0].power_w = 640;
  verdict.activity.devices[0].used_bytes = 3.0 * (1 << 30);
  EXPECT_EQ(device_time_text(verdict),
            "attention 50 %, products 40 % of a step; waits for data 2.0 %, MFU 41.0 %, 640 W, 3.0 GiB");
  FrameStyle style;
  style.columns = 200;
  bool drawn = false;
  for (const std::string& line : watch_frame(verdict, WatchHistory(), style))
    drawn = drawn || line.find("attention 50 %, products 40 % of a step") != std::string::npos;
  EXPECT_TRUE(drawn);
}

TEST(WatchFrame, TheNewestPartOfTheCurves) {
  monitor::Verdict verdict;
  for (std::int64_t i = 0; i < 400; ++i)
    verdict.log.metrics["loss"].push_back({i, i, i < 300 ? 9.0 : 3.0 + 0.001 * static_cast<double>(i)});
  FrameStyle style;
  style.ascii = true;
  const auto all = watch_frame(verdict, WatchHistory(), style);
  style.zoom = 4;
  const auto newest = watch_frame(verdict, WatchHistory(), style);
  const auto curve_of = [](const std::vector<std::string>& lines) {
    for (const std::string& line : lines)
      if (line.rfind("loss ", 0) == 0) return line;
    return std::string();
  };
  EXPECT_NE(curve_of(all).find("########"), std::string::npos) << curve_of(all);
  EXPECT_EQ(curve_of(newest).find("########"), std::string::npos) << curve_of(newest);
  EXPECT_NE(newest.back().find("newest 1/4"), std::string::npos);
  verdict.activity.devices.emplace_back();
  style.page = FrameStyle::Page::kDevices;
  for (const std::string& line : watch_frame(verdict, WatchHistory(), style))
    EXPECT_EQ(line.find("nan"), std::string::npos) << line;
}

TEST(SparkLine, NewestAtTheRightAndGapsStay) {
  EXPECT_EQ(spark_line({0, 1, 2, 3, 4, 5, 6, 7}, 8, true), "_.:-=+*#");
  EXPECT_EQ(spark_line({0, NAN, 7}, 8, true), "_ #");
  EXPECT_EQ(spark_line({1, 1}, 8, true), "==");
  EXPECT_EQ(spark_line({}, 8, true), "");
  EXPECT_EQ(spark_line(std::vector<double>(1000, 3), 10, false).size(), 30u)
      << "ten characters of three bytes";
}

TEST(WatchHistory, StaysBoundedAndKeepsSpikes) {
  WatchHistory history;
  monitor::Verdict verdict;
  for (int i = 0; i < 20000; ++i) {
    verdict.wall = i;
    verdict.activity.power_w = i == 300 ? 700 : 500;
    history.add(verdict);
  }
  EXPECT_LE(history.points().size(), WatchHistory::kMostPoints);
  double most = 0;
  for (const HistoryPoint& point : history.points()) most = std::max(most, point.power_w);
  EXPECT_EQ(most, 700);
  EXPECT_EQ(history.events().size(), 1u);
  verdict.wall = 20000;
  verdict.state.phase = monitor::Phase::kValidate;
  history.add(verdict);
  ASSERT_EQ(history.events().size(), 2u);
  EXPECT_NE(history.events().back().text.find("(validate)"), std::string::npos)
      << "what changed is said: " << history.events().back().text;
}

TEST(WatchPage, ACurveForEachGpuAndMarksForEvents) {
  monitor::Verdict verdict = judged("cases/16-alive-stuck-or-dead/b");
  WatchHistory history;
  for (int i = 0; i < 60; ++i) {
    verdict.wall = 1000 + i;
    verdict.state.phase = i < 30 ? monitor::Phase::kTrain : monitor::Phase::kSave;
    history.add(verdict);
  }
  const std::string page = watch_page_content(verdict, history);
  EXPECT_NE(page.find("power by GPU (W)"), std::string::npos);
  EXPECT_NE(page.find(">GPU 3</text>"), std::string::npos);
  EXPECT_NE(page.find("<line class=\"mark at crit\""), std::string::npos) << "where the phase changed";
}

TEST(WatchPage, EverythingFromTheRunIsEscaped) {
  monitor::Verdict verdict = judged("cases/16-alive-stuck-or-dead/b");
  verdict.name = verdict.headline = "<script>alert(1)</script>";
  verdict.log.last_lines = {"</pre><script>"};
  const std::string page = watch_page_file(verdict, WatchHistory());
  EXPECT_EQ(page.find("<script"), page.rfind("<script")) << "the page's own, none of the run's";
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;"), std::string::npos);
}

}  // namespace
}  // namespace eaglet::apps
