#include "monitor/trackio_tail.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "base/test_directory.h"
#include "monitor/run_config.h"
#include "monitor/sqlite_file.h"
#include "monitor/trackio_machine.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {
namespace {

const std::string kFile = std::string(EAGLET_TESTDATA) + "/watch/trackio/draft.db";

TEST(SqliteFile, RowsAndWhatIsWrong) {
  const auto file = SqliteFile::open(kFile);
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::vector<std::string> names;
  EXPECT_TRUE(file->select("SELECT DISTINCT run_name, NULL FROM metrics WHERE step > ?1 ORDER BY id", {"5"},
                           [&](const SqliteFile::Row& row) {
                             EXPECT_EQ(row[1], "");
                             names.emplace_back(row[0]);
                           })
                  .ok());
  EXPECT_EQ(names, (std::vector<std::string>{"warm-1", "fresh-2"}));
  const auto none = [](const SqliteFile::Row&) {};
  EXPECT_EQ(file->select("SELECT nothing FROM metrics", {}, none).code(), StatusCode::kDataLoss);
  EXPECT_EQ(file->select("DELETE FROM metrics", {}, none).code(), StatusCode::kDataLoss) << "read only";
  EXPECT_EQ(
      file->select("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n", {},
                   none)
          .code(),
      StatusCode::kDataLoss)
      << "broken off";
  EXPECT_FALSE(SqliteFile::open("/no/such/place.db").ok());
}

TEST(SqliteFile, AnyBytesAndAnyCutOfAFile) {
  const std::string dir = test_directory() + "/odd name?#%";
  std::filesystem::create_directories(dir);
  const std::string path = dir + "/x.db", whole = *read_file(kFile);
  const auto rows_of = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto file = SqliteFile::open(path);
    std::int64_t rows = 0;
    if (file.ok())
      (void)file->select("SELECT metrics FROM metrics", {}, [&](const SqliteFile::Row&) { ++rows; });
    return rows;
  };
  EXPECT_EQ(rows_of(whole), 9);
  for (std::size_t cut = 0; cut < whole.size(); cut += 97) EXPECT_LE(rows_of(whole.substr(0, cut)), 9);
  EXPECT_EQ(
      rows_of("not a database, though long enough for a header of one hundred bytes, which SQLite reads "
              "before it says anything else about a file"),
      0);
  EXPECT_EQ(list_directory(dir)->size(), 1u) << "nothing was written beside it";
}

TEST(Trackio, TheNewestRunOfAProject) {
  TrackioTail tail;
  tail.poll(kFile);
  ASSERT_TRUE(tail.any()) << tail.trouble();
  const LogFacts facts = tail.facts();
  const auto& loss = facts.series("loss_0");
  ASSERT_EQ(loss.size(), 4u) << "of the run that logged last, not of the one before it";
  EXPECT_EQ(loss[0].step, 0);
  EXPECT_EQ(loss[0].value, 10.5);
  EXPECT_EQ(facts.last_step, 30);
  EXPECT_EQ(facts.series("lr").size(), 3u);
  ASSERT_TRUE(facts.first_bad);
  EXPECT_EQ(facts.first_bad->step, 30) << "\"NaN\" is how it keeps one";
  EXPECT_EQ(facts.step_times.size(), 4u);
  EXPECT_EQ(tail.newest_time(), 1772615460);
}

TEST(Trackio, ItsConfigurationAndAlerts) {
  TrackioTail tail;
  tail.poll(kFile);
  EXPECT_TRUE(tail.alerts().empty());
  EXPECT_FALSE(tail.config()) << "a file without these tables";
  tail.poll(std::string(EAGLET_TESTDATA) + "/watch/trackio/alerts.db");
  ASSERT_TRUE(tail.config());
  EXPECT_EQ((*tail.config())["max_seq_len"], 4096);
  ASSERT_EQ(tail.alerts().size(), 2u) << "of this run, not of the one before it";
  EXPECT_EQ(tail.alerts()[0].level, "info");
  EXPECT_EQ(tail.alerts()[1].level, "error");
  EXPECT_EQ(tail.alerts()[1].title, "loss went up");
  EXPECT_EQ(tail.alerts()[1].text, "9.9 after 8.5, see the data of this step");
  EXPECT_EQ(tail.alerts()[1].step, 20);
  EXPECT_EQ(tail.alerts()[1].time, 1772615400);
  RunSeries series;
  series.tracker_config = tail.config();
  EXPECT_EQ(RunConfig(series).number("max_seq_len"), 4096);
  EXPECT_EQ(RunConfig(series).source("lr"), "Trackio");
  series.config = Json{{"lr", 1e-4}};
  EXPECT_EQ(RunConfig(series).number("lr"), 1e-4) << "what the run wrote itself is nearer";
}

/// As Trackio 0.43 itself wrote it: six minutes of two ranks that wait for each other, then half a minute of
/// nothing.
const std::string kMachineFile = std::string(EAGLET_TESTDATA) + "/watch/trackio/machine.db";

TEST(Trackio, WhatItNotedOfTheMachine) {
  TrackioTail tail;
  tail.poll(kMachineFile);
  EXPECT_EQ(tail.facts().last_step, 350) << "today's records are bytes, not text";
  ASSERT_EQ(tail.machine().size(), 40u) << "what two ranks note at one time is one moment";
  const TrackedMoment& first = tail.machine().front();
  EXPECT_EQ(first.time, 1772614800);
  EXPECT_DOUBLE_EQ(first.memory_share, 0.415);
  ASSERT_EQ(first.devices.size(), 2u);
  EXPECT_EQ(first.devices[1].index, 1);
  EXPECT_EQ(first.devices[1].busy_pct, 98);
  EXPECT_EQ(first.devices[1].power_w, 121);
  EXPECT_EQ(first.devices[1].limit_w, 700);
  EXPECT_EQ(first.devices[1].used_bytes, 61.5 * 1024 * 1024 * 1024);
  EXPECT_EQ(first.devices[1].slow_reasons, std::uint64_t{0});
  EXPECT_EQ(tail.machine().back().devices[0].busy_pct, 0);
}

TEST(Trackio, TheHardwareOfARunThatIsOver) {
  TrackioTail tail;
  tail.poll(kMachineFile);
  RunSeries series;
  series.live = true;
  series.log = tail.facts();
  series.log_known = true;
  series.tracked = tail.machine();
  RunView view;
  view.wall = 1772700000;  // a day later
  view.processes.emplace();
  series.views = {view};
  const auto judged = [&](const char* name) {
    for (const Judgement& j : make_verdict(series, Thresholds()).judgements)
      if (j.name == name) return j;
    return Judgement();
  };
  const Judgement power = judged("power");
  EXPECT_EQ(power.level, Level::kWarn);
  EXPECT_NE(power.reason.find("2 GPUs busy 98 %, 120/700 W"), std::string::npos)
      << "of its last minutes of work, not of the idle ones behind them: " << power.reason;
  EXPECT_NE(power.reason.find("waiting inside a collective"), std::string::npos) << power.reason;
  EXPECT_NE(power.reason.find("(as Trackio noted, until 2026-03-04T09:05:50Z)"), std::string::npos)
      << power.reason;
  EXPECT_NE(judged("energy").reason.find("0.023 kWh"), std::string::npos) << judged("energy").reason;
  for (TrackedMoment& moment : series.tracked)
    for (DeviceView& device : moment.devices)
      if (device.index == 1) device.slow_reasons = 0x8;
  EXPECT_EQ(judged("throttle").level, Level::kWarn);
  // A file alone, of another machine: metrics and machine end in it together.
  series.views[0].processes.reset();
  series.views[0].log.metric_time = tail.newest_time();
  EXPECT_EQ(judged("power").level, Level::kWarn);
  series.views[0].log.metric_time =
      series.views[0].wall - 5;  // it goes on, and its GPUs are not noted any more
  EXPECT_EQ(judged("power").level, Level::kUnknown);
  // What is measured here and now is not asked of a tracker; nor is what it said long ago of a run that
  // lives.
  series.views[0].devices = {DeviceView()};
  EXPECT_EQ(judged("power").reason.find("Trackio"), std::string::npos);
}

TEST(Trackio, ForeignRecordsOfAMachine) {
  for (const char* text :
       {"", "{", "[1]", "{\"gpu/\": 1, \"gpu/x/power\": 2, \"rank/gpu/0/power\": 3, \"gpu/0\": 4}",
        "{\"gpu/99999999999999999999/power\": 1}", "{\"gpu/0/power\": \"much\"}"})
    EXPECT_TRUE(tracked_moment(text, 1).devices.empty()) << text;
  const TrackedMoment both = tracked_moment("{\"gpu/0/power\": 5, \"gpu/1/power\": 6, \"gpu/1/news\": 7}", 1);
  ASSERT_EQ(both.devices.size(), 2u);
  EXPECT_EQ(both.devices[1].power_w, 6);
  EXPECT_TRUE(std::isnan(both.devices[1].busy_pct));
  std::vector<TrackedMoment> kept;
  for (int i = 0; i < 5000; ++i) add_tracked(tracked_moment("{}", 10.0 * i), &kept);
  EXPECT_EQ(kept.size(), 91u);
  add_tracked(tracked_moment("{}", kNotKnown), &kept);
  EXPECT_EQ(kept.size(), 91u);
}

TEST(Trackio, WhatCannotBeReadIsSaidAndTriedAgain) {
  const std::string path = test_directory() + "/p.db";
  TrackioTail tail;
  tail.poll(path);
  EXPECT_FALSE(tail.any());
  std::ofstream(path) << "half";
  tail.poll(path);
  EXPECT_FALSE(tail.any());
  EXPECT_FALSE(tail.trouble().empty());
  std::filesystem::copy_file(kFile, path, std::filesystem::copy_options::overwrite_existing);
  tail.poll(path);
  EXPECT_TRUE(tail.any());
  EXPECT_EQ(tail.trouble(), "");
}

TEST(Trackio, WhereItsFileIs) {
  const std::string dir = test_directory();
  const auto put = [&](const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(dir + name).parent_path());
    std::ofstream(dir + name) << "x";
    return dir + name;
  };
  const std::string mine = put("/home/.cache/huggingface/trackio/mine.db");
  const std::map<std::string, std::string> home = {{"HOME", dir + "/home"}};
  EXPECT_EQ(find_trackio_file({}, home, "", 1000), mine);
  EXPECT_EQ(find_trackio_file({}, home, "", 4e9), "") << "older than the run";
  EXPECT_EQ(find_trackio_file({"/x/optuna.db"}, home, "", 1000), mine);
  const std::string other = put("/home/.cache/huggingface/trackio/other.db");
  EXPECT_EQ(find_trackio_file({}, home, "", 1000), "") << "which of two is not to be told";
  EXPECT_EQ(find_trackio_file({other}, home, "", 1000), other) << "but by what is open";
  const std::string named = put("/t/p.db"), below = put("/out/trackio/p.db");
  auto set = home;
  set["TRACKIO_DIR"] = dir + "/t";
  EXPECT_EQ(find_trackio_file({}, set, "", 1000), named);
  EXPECT_EQ(find_trackio_file({}, {}, dir + "/out", kNotKnown), below) << "of a run that is gone";
  EXPECT_EQ(find_trackio_file({}, {}, "", 1000), "");
}

}  // namespace
}  // namespace eaglet::monitor
