#include "monitor/saved_views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/test_directory.h"
#include "monitor/draft_cost.h"
#include "monitor/log_reader.h"
#include "monitor/next_command.h"
#include "monitor/saved_tables.h"
#include "monitor/verdict.h"
#include "monitor/verdict_text.h"

namespace eaglet::monitor {
namespace {

const std::string kCase16 = EAGLET_TESTDATA "/cases/16-alive-stuck-or-dead/";

Verdict judge(const std::vector<std::string>& directories) {
  const auto series = read_saved_views(directories);
  EXPECT_TRUE(series.ok()) << series.status().message();
  return series.ok() ? make_verdict(*series, Thresholds()) : Verdict();
}

struct Expected {
  const char* run;
  const char* state;
  int code;
  const char* words;
};

TEST(Case16, SevenSilentRuns) {
  const Expected expected[] = {{"a", "RUNNING", 0, "log silent, probably buffered"},
                               {"b", "STALLED", 2, "waiting in a collective; suspect rank 2 (pid 4103)"},
                               {"c", "STALLED", 2, "waiting for data"},
                               {"d", "DEAD", 2, "orphans 4205 and 4206 left"},
                               {"e", "STARTING", 0, "not stalled"},
                               {"f", "FINISHED", 0, "checkpoint-3000"},
                               {"g", "DEAD", 2, "resume from 1500, 10 steps lost"}};
  for (const Expected& want : expected) {
    SCOPED_TRACE(want.run);
    const Verdict verdict = judge({kCase16 + want.run});
    EXPECT_STREQ(state_word(verdict.state.state), want.state);
    EXPECT_EQ(verdict_exit_code(verdict), want.code);
    const std::string text = verdict_text(
        verdict, [](const std::string& word, Level) { return word; }, false);
    const std::string first = text.substr(0, text.find('\n'));
    EXPECT_EQ(first.rfind(want.state, 0), 0u) << first;
    EXPECT_NE(first.find(want.words), std::string::npos) << first;
    EXPECT_EQ(verdict_json(verdict)["state"], want.state);
    EXPECT_EQ(verdict.name, want.run);
  }
}

TEST(Case16, TwoKindsOfEvidenceAreNamed) {
  for (const char* run : {"a", "b", "c", "e"}) {
    const Verdict verdict = judge({kCase16 + run + "/t0", kCase16 + run + "/t1"});
    std::set<std::string> kinds;
    const bool progress = std::string(run) == "a" || std::string(run) == "e";
    for (const Evidence& evidence : verdict.state.evidence)
      if (evidence.progress == progress) kinds.insert(evidence.kind);
    EXPECT_GE(kinds.size(), 2u) << run;
  }
}

TEST(Case16, OneViewIsNotEnoughUnlessTheRunIsGone) {
  for (const char* run : {"a", "b", "c", "e"}) {
    const Verdict verdict = judge({kCase16 + run + "/t0"});
    EXPECT_STREQ(state_word(verdict.state.state), "UNKNOWN") << run;
    EXPECT_NE(verdict.headline.find("not enough yet"), std::string::npos) << verdict.headline;
    EXPECT_EQ(verdict_exit_code(verdict), 3) << run;
  }
  EXPECT_STREQ(state_word(judge({kCase16 + "d/t0"}).state.state), "DEAD");
  EXPECT_STREQ(state_word(judge({kCase16 + "f/t0"}).state.state), "FINISHED");
  EXPECT_STREQ(state_word(judge({kCase16 + "g/t0"}).state.state), "DEAD");
}

TEST(Case16, WhatToDoNext) {
  const Verdict b = judge({kCase16 + "b"}), c = judge({kCase16 + "c"}), d = judge({kCase16 + "d"});
  EXPECT_NE(b.headline.find("no progress for 40m20s, 1m"), std::string::npos) << b.headline;
  EXPECT_EQ(b.next.find("py-spy dump --pid 4103 (or gdb -p 4103), then restart"), 0u) << b.next;
  EXPECT_EQ(
      c.next,
      "py-spy dump --pid 4200 (a loader), py-spy dump --pid 4101 (a rank), then restart (no checkpoint is "
      "among its files)");
  EXPECT_NE(d.headline.find("no checkpoint is among its files"), std::string::npos) << d.headline;
}

TEST(Case16, AStalledRunSaysWhatARestartCosts) {
  auto series = read_saved_views({kCase16 + "b"});
  ASSERT_TRUE(series.ok());
  for (RunView& view : series->views)
    for (const char* file : {"run/checkpoint-500/model.safetensors", "run/checkpoint-1000/model.safetensors"})
      view.files->push_back({series->views.front().wall - 9000, 9e9, file});
  const Verdict verdict = make_verdict(*series, Thresholds());
  EXPECT_NE(verdict.next.find("restart from run/checkpoint-1000 (190 steps lost)"), std::string::npos)
      << verdict.next;
  EXPECT_EQ(verdict.state.resume_step, 1000);
}

TEST(Case16, ALogThatItsFileSystemShowsLate) {
  auto series = read_saved_views({kCase16 + "a"});
  ASSERT_TRUE(series.ok());
  series->views.front().log.position = 1000;
  series->views.back().log.position = 9192;
  const Verdict verdict = make_verdict(*series, Thresholds());
  EXPECT_NE(verdict.state.silence.find("wrote 8.19 kB into it"), std::string::npos) << verdict.state.silence;
  EXPECT_EQ(verdict.state.silence.find("buffered"), std::string::npos);
}

TEST(NextCommand, WhereACauseIsToBeSeen) {
  RunSeries series;
  Activity activity;
  Judgement j = configuration_judgement("packing", Level::kWarn, "");
  series.name = "a run";
  series.live = true;
  EXPECT_EQ(next_command(j, series, activity), "eaglet doctor 'a run' --all") << "nothing is known";
  series.log_path = "/x/my log's.txt";
  EXPECT_EQ(next_command(j, series, activity),
            "grep -n -i -E 'pack|seq.?len|batch' '/x/my log'\\''s.txt' | head");
  series.config_path = "/x/run.yaml";
  EXPECT_EQ(next_command(j, series, activity), "grep -n -i -E 'pack|seq_len|batch' /x/run.yaml");
  j.name = "speed";
  activity.ranks.emplace_back().pid = 7;
  EXPECT_EQ(next_command(j, series, activity), "eaglet doctor 7 --all") << "no GPU, no nvidia-smi";
  activity.devices_known = true;
  EXPECT_EQ(next_command(j, series, activity), "nvidia-smi dmon -s pucm -c 5");
  series.live = false;
  j.name = "no such judgement";
  EXPECT_EQ(next_command(j, series, activity), "eaglet doctor --all --snapshots FOLDERS");
}

TEST(Case16, OrphansAndWhatTheyHold) {
  const Verdict verdict = judge({kCase16 + "d"});
  ASSERT_EQ(verdict.state.orphans.size(), 2u);
  EXPECT_EQ(verdict.state.orphans[0].pid, 4205);
  EXPECT_EQ(verdict.state.orphans[1].pid, 4206);
  EXPECT_EQ(verdict.state.orphans[0].device_bytes, 39020.0 * 1024 * 1024);
  EXPECT_EQ(verdict.log.series("loss").back().value, 7.31) << "half a record is no loss";
  EXPECT_EQ(verdict.step, 2040);
}

const Judgement* find(const Verdict& verdict, const std::string& name) {
  for (const Judgement& j : verdict.judgements)
    if (j.name == name) return &j;
  return nullptr;
}

// The two runs that an engineer once watched by hand (docs/watch.md): what the tool says instead.
TEST(Section0, FirstRunIsHealthyThoughSilent) {
  const Verdict verdict = judge({EAGLET_TESTDATA "/watch/section0/run1"});
  EXPECT_STREQ(state_word(verdict.state.state), "RUNNING") << verdict.headline;
  EXPECT_EQ(verdict_exit_code(verdict), 0) << verdict.headline;
  EXPECT_NE(verdict.state.silence.find("buffered"), std::string::npos) << verdict.state.silence;
  const Judgement* mfu = find(verdict, "mfu");
  ASSERT_NE(mfu, nullptr);
  EXPECT_NEAR(mfu->value, 0.31, 0.02);
}

TEST(Section0, SecondRunIsNotPacked) {
  const Verdict verdict = judge({EAGLET_TESTDATA "/watch/section0/run2"});
  EXPECT_STREQ(state_word(verdict.state.state), "RUNNING");
  EXPECT_EQ(verdict_exit_code(verdict), 1);
  EXPECT_NE(
      verdict.headline.find(
          "35,446 batches = 95 % of 37,312 samples: not packed (fill 26 %, 74 % of the work is padding)"),
      std::string::npos)
      << verdict.headline;
  EXPECT_EQ(first_thing_to_do(verdict), "restart with packing: about 9,300 batches, 3.8x fewer steps");
  EXPECT_EQ(verdict.next.find("grep -n -i -E 'pack|seq_len|batch' "), 0u) << verdict.next;
  EXPECT_NE(find(verdict, "parameters")->reason.find("1.1909 B trainable of 2.5947 B"), std::string::npos);
  EXPECT_EQ(find(verdict, "parameters")->level, Level::kOk);
  EXPECT_NE(find(verdict, "gpu_memory")->reason.find("max_seq_len 8192 -> 16384 would fit"),
            std::string::npos)
      << find(verdict, "gpu_memory")->reason;
  EXPECT_NE(find(verdict, "power")->reason.find("under-filled"), std::string::npos);
  EXPECT_EQ(find(verdict, "first_loss")->level, Level::kOk);
  EXPECT_EQ(find(verdict, "lr")->level, Level::kOk) << find(verdict, "lr")->reason;
  EXPECT_NE(find(verdict, "steps")->reason.find("/ 2 (ranks or accumulation)"), std::string::npos);
}

TEST(Activity, ACheckpointThatWasCutOffIsNotResumedFrom) {
  RunView view;
  view.wall = 1000;
  view.files = {{100, 9e9, "out/checkpoint-10/model.safetensors"},
                {200, 9e9, "out/checkpoint-20/model.safetensors"},
                {300, 2e9, "out/checkpoint-30/model.safetensors"}};
  RunSeries series;
  series.views.push_back(view);
  EXPECT_EQ(newest_whole_checkpoint(activity_of(series, Thresholds()))->step, 20);
  series.views.front().files->back().bytes = 8.9e9;
  EXPECT_EQ(newest_whole_checkpoint(activity_of(series, Thresholds()))->step, 30);
  EXPECT_EQ(newest_whole_checkpoint(Activity()), nullptr);
}

/// A CPU run of two ranks, watched for a minute, whose log prints no times and was written `silent` seconds
/// ago after 50 records in ten minutes; rank 1 stands still.
StateVerdict of_two_ranks(double silent) {
  RunSeries series;
  series.live = true;
  series.log_known = true;
  series.log.records = 50;
  series.log.last_step = 50;
  series.log.lines = 50;
  for (int second = 0; second <= 60; ++second) {
    RunView view;
    view.wall = view.monotonic = 1e9 + second;
    view.only_this_run = true;
    view.log = {.known = true, .bytes = 2500, .mtime = 1e9 + 60 - silent, .records = 50, .last_step = 50};
    for (std::int64_t rank : {0, 1}) {
      ProcessView process;
      process.pid = 100 + rank;
      process.rank = rank;
      process.state = 'S';
      process.command = "python train.py";
      process.cpu_seconds = rank == 0 ? 0.3 * second : 5;
      process.elapsed_seconds = 600 + silent + second - 60;
      if (!view.processes) view.processes.emplace();
      view.processes->push_back(process);
    }
    series.views.push_back(view);
  }
  return judge_state(series, activity_of(series, Thresholds()), Thresholds());
}

TEST(State, ALogWithoutTimesHasARhythmToo) {
  const StateVerdict late = of_two_ranks(400);
  EXPECT_EQ(late.state, RunState::kLate) << late.cause;
  EXPECT_EQ(late.suspect_rank, 1) << late.cause;
  EXPECT_EQ(late.allowed_seconds, 120) << "ten times the twelve seconds between two records";
  EXPECT_EQ(of_two_ranks(100).state, RunState::kRunning) << of_two_ranks(100).cause;
}

TEST(Phase, ALongGapIsForgottenAfterAnHour) {
  RunSeries series;
  for (std::int64_t step = 0; step < 100; ++step)
    series.log.step_times.emplace_back(step, 60.0 * static_cast<double>(step) + (step >= 50 ? 7200 : 0));
  EXPECT_EQ(allowed_silence(Phase::kTrain, series, Thresholds()), 3 * 7260.0) << "stopped for two hours";
  for (std::int64_t step = 100; step < 120; ++step)
    series.log.step_times.emplace_back(step, 60.0 * static_cast<double>(step) + 7200);
  EXPECT_EQ(allowed_silence(Phase::kTrain, series, Thresholds()), 600.0)
      << "ten steps: more than an hour later that gap is none to measure by";
}

// The first by its batches; later ones by the last, whose times the log printed.
TEST(Phase, AValidationMayTakeTwiceTheLast) {
  const std::string steps =
      "2026-11-30 10:00:00,000 INFO {'loss': 5.1, 'step': 10}\n"
      "2026-11-30 10:00:04,000 INFO {'loss': 5.0, 'step': 12}\n"
      "2026-11-30 10:00:08,000 INFO {'loss': 4.9, 'step': 14}\n";
  const std::string begins = "2026-11-30 10:00:10,000 INFO Validation epoch 1/5 started\n";
  LogReader reader;
  reader.feed(steps + begins);
  RunSeries series;
  series.log = reader.facts();
  EXPECT_TRUE(std::isnan(series.log.last_validation_seconds));
  EXPECT_EQ(allowed_silence(Phase::kValidate, series, Thresholds()), 600);
  series.log.val_batches = 1000;
  EXPECT_EQ(allowed_silence(Phase::kValidate, series, Thresholds()), 2000) << "two seconds a step";
  reader.feed("2026-11-30 10:05:10,000 INFO Training epoch 2/5 started\n" +
              std::string("2026-11-30 10:06:00,000 ") + "INFO Validation epoch 2/5 started\n");
  series.log = reader.facts();
  EXPECT_EQ(series.log.last_validation_seconds, 300);
  EXPECT_EQ(allowed_silence(Phase::kValidate, series, Thresholds()), 600);
  Thresholds strict;
  strict.validate_factor = 1.5;
  EXPECT_EQ(allowed_silence(Phase::kValidate, series, strict), 450);
}

TEST(DraftCost, FlopPerTokenAsTabled) {
  DraftShape shape;
  shape.hidden = 7168;
  shape.query_width = shape.kv_width = 8192;
  shape.intermediate = 18432;
  shape.draft_vocab = shape.teacher_vocab = 32000;
  shape.document_length = 2150;
  for (const auto& [steps, gflop] : {std::pair{1, 7.40}, {3, 20.05}, {5, 32.71}, {7, 45.36}}) {
    shape.ttt_steps = steps;
    EXPECT_NEAR(training_flop_per_token(shape) / 1e9, gflop, 0.006);
  }
  shape.head_trained = false;
  EXPECT_NEAR(training_flop_per_token(shape) / 1e9, 42.15, 0.006);
}

TEST(SavedViews, WhatIsAbsentIsUnknown) {
  // Leave out one file at a time: never a crash, never a wrong cry of stall for the healthy run.
  for (const char* run : {"a", "b", "c", "e"})
    for (const char* missing :
         {"clock.txt", "ps.txt", "gpu.csv", "compute_apps.csv", "files.txt", "train.log"}) {
      const std::string directory = test_directory();
      std::filesystem::copy(kCase16 + run, directory, std::filesystem::copy_options::recursive);
      for (const char* t : {"/t0/", "/t1/"}) std::filesystem::remove(directory + t + missing);
      const Verdict verdict = judge({directory});
      const std::string state = state_word(verdict.state.state);
      if (std::string(run) == "a" || std::string(run) == "e") {
        EXPECT_NE(state, "STALLED") << run << " without " << missing;
      }
      EXPECT_NE(state, "DEAD") << run << " without " << missing;
      EXPECT_NE(state, "FINISHED") << run << " without " << missing;
    }
}

TEST(SavedViews, FoldersThatAreNone) {
  EXPECT_EQ(read_saved_views({"/nowhere/at/all"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_saved_views({test_directory()}).status().code(), StatusCode::kDataLoss);
}

TEST(SavedTables, OddCells) {
  const auto devices = read_gpu_csv(
      "index, name, utilization.gpu [%], power.draw [W], power.limit [W], memory.used [MiB], memory.total "
      "[MiB]\n"
      "0, H200, [N/A], [Not Supported], 700.00 W, 10 MiB, 143771 MiB\n"
      "1, H200, ERR!, 90.1 W, 700.00 W, 10 MiB, 143771 MiB\n"
      "2, H200, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n\n");
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_TRUE(std::isnan(devices[0].busy_pct) && std::isnan(devices[0].power_w));
  EXPECT_FALSE(devices[0].lost);
  EXPECT_TRUE(devices[1].lost && devices[2].lost);
  EXPECT_EQ(devices[0].total_bytes, 143771.0 * 1024 * 1024);
  EXPECT_TRUE(read_gpu_csv("No devices were found\n").empty());
  const auto processes = read_ps("PID PPID S TIME COMMAND\n7 1 S 1-02:03:04 a (b) c --rank=3 x\nnonsense\n");
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].cpu_seconds, 86400 + 2 * 3600 + 3 * 60 + 4);
  EXPECT_EQ(processes[0].rank, 3);
  EXPECT_EQ(processes[0].command, "a (b) c --rank=3 x");
  const auto files = read_file_list("2026-03-04T11:00:12,5,a,b.bin\n1772622012,6,c\nbad\n");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "a,b.bin");
  EXPECT_EQ(files[0].mtime, files[1].mtime);
}

}  // namespace
}  // namespace eaglet::monitor
