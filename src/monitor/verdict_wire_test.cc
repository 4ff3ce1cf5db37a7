#include "monitor/verdict_wire.h"

#include <gtest/gtest.h>

#include <cmath>

#include "monitor/prometheus.h"
#include "monitor/saved_views.h"
#include "monitor/verdict_plain.h"
#include "monitor/verdict_text.h"

namespace eaglet::monitor {
namespace {

Verdict judged(const std::string& folder) {
  const auto series = read_saved_views({EAGLET_TESTDATA "/" + folder});
  EXPECT_TRUE(series.ok()) << series.status().message();
  return series.ok() ? make_verdict(*series, Thresholds()) : Verdict();
}

std::string plain(const std::string& text, Level) {
  return text;
}

TEST(VerdictWire, WhatArrivesIsShownAsItWouldBeThere) {
  for (const char* folder : {"watch/section0/run1", "watch/section0/run2", "cases/16-alive-stuck-or-dead/a",
                             "cases/16-alive-stuck-or-dead/b", "cases/16-alive-stuck-or-dead/d",
                             "cases/16-alive-stuck-or-dead/f"}) {
    SCOPED_TRACE(folder);
    Verdict there = judged(folder);
    there.activity.server.known = std::string(folder).ends_with("run2");
    there.activity.server.kind = "vLLM";
    there.activity.server.running = 12;
    there.activity.server.generated_tokens_per_second = 2310.7;
    std::map<std::string, std::int64_t> sent;
    const auto line = parse_json(json_line(verdict_to_wire(there, &sent)));
    ASSERT_TRUE(line.ok());
    Verdict here;
    ASSERT_TRUE(verdict_from_wire(*line, &here).ok());
    EXPECT_EQ(verdict_text(here, plain, true), verdict_text(there, plain, true));
    EXPECT_EQ(verdict_json(here), verdict_json(there));
    EXPECT_EQ(verdict_nagios(here), verdict_nagios(there));
    EXPECT_EQ(prometheus_text(here, "1"), prometheus_text(there, "1"));
    EXPECT_EQ(verdict_exit_code(here), verdict_exit_code(there));
  }
}

TEST(VerdictWire, CurvesGrowAndAResumedRunReplacesSteps) {
  Verdict there, here;
  std::map<std::string, std::int64_t> sent;
  auto& loss = there.log.metrics["loss"];
  const auto pass = [&] { ASSERT_TRUE(verdict_from_wire(verdict_to_wire(there, &sent), &here).ok()); };
  for (std::int64_t i = 1; i <= 100; ++i) loss.push_back({i, i, 5.0});
  pass();
  loss.push_back({101, 101, NAN});
  const Json more = verdict_to_wire(there, &sent);
  EXPECT_EQ(more["metrics"]["loss"].size(), 1u) << "only what is new";
  ASSERT_TRUE(verdict_from_wire(more, &here).ok());
  ASSERT_EQ(here.log.series("loss").size(), 101u);
  EXPECT_TRUE(std::isnan(here.log.series("loss").back().value));
  loss.push_back({91, 102, 4.0});
  pass();
  EXPECT_EQ(here.log.series("loss").size(), 91u);
  EXPECT_EQ(here.log.series("loss").back().value, 4.0);
  loss = {{1, 1, 9.0}, {2, 2, 8.0}};
  pass();
  EXPECT_EQ(here.log.series("loss").size(), 2u) << "another log";
  loss.clear();
  for (std::int64_t i = 3; i <= 30000; ++i) loss.push_back({i, i, 1.0});
  pass();
  EXPECT_LE(here.log.series("loss").size(), 8192u * 2);
}

TEST(VerdictWire, ForeignBytesAreRefusedOrIgnored) {
  Verdict verdict;
  for (const char* text : {"null", "[]", "{}", "{\"wire\":0}", "{\"wire\":\"1\"}", "7"})
    EXPECT_EQ(verdict_from_wire(*parse_json(text), &verdict).code(), StatusCode::kDataLoss) << text;
  const auto odd = parse_json(
      R"({"wire":1,"state":99,"phase":-3,"level":"x","name":7,"ranks":[1,{"pid":"x","state":"long"}],"views":1e300,
          "workers":18446744073709551615,"metrics":{"loss":[[1],[1,2,3,4],["a",1,2],[1,1,"x"]],"a":5},"last_lines":[1,"x"]})");
  ASSERT_TRUE(odd.ok());
  ASSERT_TRUE(verdict_from_wire(*odd, &verdict).ok());
  EXPECT_EQ(verdict.state.state, RunState::kUnknownState);
  EXPECT_EQ(verdict.activity.ranks.size(), 1u);
  EXPECT_EQ(verdict.activity.ranks[0].state, '?');
  EXPECT_EQ(verdict.activity.views, 0);
  EXPECT_EQ(verdict.log.last_lines.size(), 1u);
  EXPECT_LE(verdict.activity.roles.workers.size(), 100000u);
}

TEST(VerdictWire, ShapesThatNoWatcherSends) {
  Verdict verdict;
  Json wire = {
      {"wire", kWireVersion}, {"power_w", 300}, {"metrics", {{"loss_0", Json::array()}, {"lr", {7}}}}};
  ASSERT_TRUE(verdict_from_wire(wire, &verdict).ok());
  EXPECT_TRUE(verdict.log.loss_names().empty()) << "a curve has a point";
  EXPECT_EQ(verdict.log.metrics.count("lr"), 0u);
  EXPECT_NE(verdict_nagios(verdict).find("EAGLET"), std::string::npos) << "power, and no device it is of";
  EXPECT_EQ(verdict_plain(verdict), "");
  EXPECT_EQ(plain_row({"a\tb\n", "", "c"}), "a b \t-\tc\n");
}

}  // namespace
}  // namespace eaglet::monitor
