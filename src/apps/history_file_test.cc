#include "apps/history_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/test_directory.h"

namespace eaglet::apps {
namespace {

HistoryMoment moment_at(double wall, monitor::Phase phase = monitor::Phase::kTrain) {
  HistoryMoment moment;
  moment.point.wall = wall;
  moment.point.step = static_cast<std::int64_t>(wall);
  moment.point.power_w = 500;
  moment.point.device_busy_pct = {97, monitor::kNotKnown};
  moment.point.device_power_w = {510, 490};
  moment.state = monitor::RunState::kRunning;
  moment.phase = phase;
  moment.level = monitor::Level::kOk;
  moment.headline = "steps advance";
  return moment;
}

std::size_t lines_of(const std::string& path) {
  const std::string text = *read_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(HistoryFile, ALineAndBack) {
  const auto back = history_moment(history_line(moment_at(1000.5, monitor::Phase::kServe)));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->point.wall, 1000.5);
  EXPECT_EQ(back->point.step, 1000);
  EXPECT_EQ(back->point.power_w, 500);
  EXPECT_TRUE(std::isnan(back->point.cores)) << "what was not known stays so";
  EXPECT_EQ(back->point.device_power_w, (std::vector<double>{510, 490}));
  EXPECT_TRUE(std::isnan(back->point.device_busy_pct[1]));
  EXPECT_EQ(back->phase, monitor::Phase::kServe);
  EXPECT_EQ(back->headline, "steps advance");
  for (const char* none :
       {"", "{}", "[1]", R"({"t": "x", "state": "RUNNING", "phase": "train", "level": "ok"})",
        R"({"t": 1, "state": "HAPPY", "phase": "train", "level": "ok"})"})
    EXPECT_FALSE(history_moment(none)) << none;
}

TEST(HistoryFile, AWatcherGoesOnFromItEvenFromHalfALine) {
  const std::string path = test_directory() + "/history.jsonl";
  {
    WatchHistory first;
    auto file = HistoryFile::open(path, &first);
    ASSERT_TRUE(file.ok()) << file.status().what();
    for (int second = 0; second < 100; ++second)
      ASSERT_TRUE(
          (*file)
              ->add(moment_at(1000 + second, second < 55 ? monitor::Phase::kCompile : monitor::Phase::kTrain))
              .ok());
  }
  EXPECT_EQ(lines_of(path), 11u) << "each ten seconds, and the change of phase";
  std::ofstream(path, std::ios::app) << R"({"t": 1100, "state": "RUNN)";  // killed
  WatchHistory second;
  auto file = HistoryFile::open(path, &second);
  ASSERT_TRUE(file.ok()) << file.status().what();
  EXPECT_EQ(second.points().size(), 11u);
  ASSERT_EQ(second.phases().size(), 2u);
  EXPECT_EQ(second.phases()[1].from, 1055);
  EXPECT_EQ(second.events().size(), 2u);
  ASSERT_TRUE((*file)->add(moment_at(1200)).ok());
  WatchHistory third;
  ASSERT_TRUE(HistoryFile::open(path, &third).ok());
  EXPECT_EQ(third.points().size(), 12u) << "the half line was cut, nothing was glued to it";
}

TEST(HistoryFile, WhatIsTooLongIsThinnedAndWhatIsNoHistoryIsLeftAlone) {
  const std::string path = test_directory() + "/history.jsonl";
  {
    std::ofstream out(path);
    for (int i = 0; i < 30000; ++i)
      out << history_line(moment_at(10.0 * i, i == 4001 ? monitor::Phase::kSave : monitor::Phase::kTrain))
          << "\n";
  }
  WatchHistory history;
  ASSERT_TRUE(HistoryFile::open(path, &history).ok());
  EXPECT_EQ(lines_of(path), 25000u / 4 + 2 + 5000);
  EXPECT_NE(read_file(path)->find("\"save\""), std::string::npos) << "a change is kept";
  EXPECT_EQ(history_moment(read_file(path)->substr(read_file(path)->rfind("{\"")))->point.wall, 299990);
  std::ofstream(path) << "dear diary\n";
  EXPECT_EQ(HistoryFile::open(path, &history).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(*read_file(path), "dear diary\n");
}

}  // namespace
}  // namespace eaglet::apps
