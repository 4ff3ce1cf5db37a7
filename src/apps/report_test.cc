#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "apps/report_html.h"
#include "apps/run_report.h"
#include "apps/svg_chart.h"
#include "base/files.h"

namespace eaglet::apps {
namespace {
using ::testing::HasSubstr;
using ::testing::Not;

Json made_up_report(double speed_up) {
  return Json{{"run", "runs/<a>"},
              {"finished_time", "2026-11-29T21:00:00Z"},
              {"model", "m.gguf"},
              {"answers", 100},
              {"answers_cut_by_length", 40},
              {"tokens", 15000},
              {"supervised_share", 0.7},
              {"state_bytes", 69000000},
              {"states_kept", true},
              {"train_steps", 24},
              {"trainable_params", 12.5e6},
              {"total_params", 40e6},
              {"train_tokens_per_second", 812.0},
              {"held_out_documents", 10},
              {"held_out_supervised_tokens", 1100},
              {"held_out_acceptance_length", 1.3},
              {"acceptance_by_depth", {0.25, 0.05}},
              {"right_inside_draft_vocabulary_by_depth", {0.27, 0.06}},
              {"served_acceptance_length", 1.28},
              {"served_draft_length", 2},
              {"served_prompts", 10},
              {"served_with", "our own engine"},
              {"served_at_once", 16},
              {"tokens_per_second_without_draft", 80.0},
              {"served_differences", 0},
              {"served_differences_not_ties", 0},
              {"served",
               {{{"draft_length", 1},
                 {"tokens_per_pass", 1.25},
                 {"accepted_at", {200.0}},
                 {"passes", 800.0},
                 {"tokens_per_second", 80 * speed_up},
                 {"speed_up", speed_up},
                 {"break_even_tokens_per_pass", 1.25 / speed_up}},
                {{"draft_length", 2},
                 {"tokens_per_pass", 1.28},
                 {"accepted_at", {200.0, 40.0}},
                 {"passes", 780.0},
                 {"tokens_per_second", 30.0},
                 {"speed_up", 0.375},
                 {"break_even_tokens_per_pass", 3.41}}}},
              {"draft", "export/draft-q8_0.gguf"},
              {"stages",
               {{{"stage", "generate"}, {"seconds", 61.0}, {"bytes", 5e5}},
                {{"stage", "extract"}, {"seconds", 70.0}, {"bytes", 6.9e7}}}}};
}

std::vector<LogRecord> made_up_log(int steps) {
  std::vector<LogRecord> log;
  for (int step = 0; step < steps; ++step) {
    LogRecord record;
    record.event = step % 8 == 7 ? "validation" : "step";
    record.step = step;
    record.loss = {9 - 0.1 * step, 9.5 - 0.05 * step};
    record.full_acc = {0.01 * step, 0.002 * step};
    record.acceptance_length = 1 + 0.012 * step;
    record.lr = 1e-3;
    record.tokens_per_second = 800;
    record.step_seconds = 2.5;
    record.data_wait_seconds = step == 3 ? LogRecord::kNone : 0.01;
    record.grad_norm = 1;
    log.push_back(record);
  }
  return log;
}

TEST(Report, SaysPlainlyWhenBelowBreakEven) {
  const std::string below = verdict(made_up_report(0.5));
  EXPECT_THAT(below, HasSubstr("Below break-even"));
  EXPECT_THAT(below, HasSubstr("0.50x"));
  EXPECT_THAT(below, HasSubstr("needs about 2.50 tokens per pass, this draft reaches 1.25"));
  EXPECT_THAT(below, HasSubstr("worth about 1.21x"));  // 1.25 / 1.03 beats 1.28 / 1.06
  const std::string above = verdict(made_up_report(1.2));
  EXPECT_THAT(above, HasSubstr("makes 1.20x the tokens per second"));
  EXPECT_THAT(above, Not(HasSubstr("Below")));
  EXPECT_EQ(verdict(Json{{"answers", 1}}), "");
}

TEST(Report, TableNamesEveryFact) {
  Json report = made_up_report(0.5);
  report["verdict"] = verdict(report);
  const std::string table = report_table(report, false);
  for (const char* fact :
       {"100 (40 cut by length)", "15000, 70.0 % supervised", "69.00 MB", "812 tokens/s", "0.250  0.050",
        "1.300", "1.280 (draft length 2, 10 prompts)", "our own engine, 16 prompts at once", "80.0",
        "40.0  (0.50x, 1.250 tokens per pass, break-even at 2.50)", "identical", "export/draft-q8_0.gguf",
        "Below break-even"})
    EXPECT_THAT(table, HasSubstr(fact));
  report["served_differences"] = 1;
  report["served_differences_not_ties"] = 1;
  EXPECT_THAT(report_table(report, false), HasSubstr("DIFFERS 1 times"));
}

TEST(Report, PageIsWholeAndEscapes) {
  Json report = made_up_report(0.5);
  report["verdict"] = verdict(report);
  const std::string page = report_html(report, made_up_log(40), "[run]\noutput_dir = \"<x>{{TITLE}}\"\n");
  EXPECT_THAT(page, HasSubstr("Served by our own engine, greedy"));
  EXPECT_THAT(page, HasSubstr("<title>eaglet: runs/&lt;a&gt;</title>"));
  EXPECT_THAT(page, HasSubstr("&lt;x&gt;{{TITLE}}"));  // a value that looks like a mark stays as it is
  EXPECT_THAT(page, Not(HasSubstr("runs/<a>")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, HasSubstr("</html>"));
  const char* place = std::getenv("EAGLET_KEEP_PICTURES");
  if (place == nullptr) return;
  EXPECT_TRUE(write_file_atomic(std::string(place) + "/made-up.html", page).ok());
}

TEST(Chart, GapsSpikesAndNothing) {
  EXPECT_THAT(line_chart("t", "step", {{.name = "a", .points = {}}}, false), HasSubstr("no data"));
  Series gap{.name = "a", .points = {{0, 1}, {1, std::nan("")}, {2, 3}}};
  const std::string with_gap = line_chart("t", "step", {gap}, false);
  EXPECT_EQ(std::count(with_gap.begin(), with_gap.end(), 'M'), 2);  // the pen is lifted once
  Series spiky{.name = "a", .points = {}};
  for (int i = 0; i < 50000; ++i) spiky.points.emplace_back(i, i == 31234 ? 100.0 : 1.0);
  const std::string thinned = line_chart("t", "step", {spiky}, true);
  EXPECT_LT(thinned.size(), 60000u);
  EXPECT_THAT(thinned, HasSubstr(" 39.05 "));  // the spike still reaches its place, near the top
  EXPECT_THAT(line_chart("t", "step", {{.name = "flat", .points = {{0, 5}, {1, 5}}}}, false),
              Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace eaglet::apps
