#include "train/train_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>

#include "base/interrupt.h"
#include "formats/json.h"
#include "runlog/log_record.h"
#include "runlog/status_file.h"
#include "train/checkpoint_folder.h"
#include "train/toy_fixture_test.h"
#include "train/train_settings.h"

namespace eaglet {
namespace {

namespace fs = std::filesystem;
using toy::TrainRun;

TEST_F(TrainRun, WritesEverythingThatWasPromised) {
  TrainOptions options = this->options("run");
  std::vector<std::string> lines;
  options.on_step_line = [&](const std::string& line) { lines.push_back(line); };
  const Result<TrainReport> report = run(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const std::int64_t total = report->total_steps;
  EXPECT_EQ(report->steps, total);
  EXPECT_GE(total, 10);
  EXPECT_LT(report->last_loss, report->first_loss);
  EXPECT_GT(report->held_out_acceptance_length, 1.0);
  EXPECT_EQ(report->held_out_full_acc.size(), 3u);
  const std::string dir = options.output_dir;
  EXPECT_EQ(fs::read_symlink(dir + "/checkpoints/latest").string(), checkpoint_name(total - 1));
  EXPECT_TRUE(check_folder(dir + "/checkpoints/latest").whole);
  EXPECT_TRUE(check_folder(report->best_checkpoint).whole);

  const Json config = *read_json_file(dir + "/train_config.json");
  EXPECT_EQ(config["total_steps"], total);
  EXPECT_EQ(config["train_batches"].get<std::int64_t>() * options.epochs, total);
  EXPECT_EQ(config["draft_vocab_size"], 24);
  EXPECT_EQ(config["intermediate_size"], 24);
  EXPECT_EQ(config["warmup_steps"], 2);
  // fc 16x48, q 16x32, k and v 8x32, o 16x16, MLP 3x24x16, 4 norms of 16, head 24x16.
  EXPECT_EQ(config["trainable_params"], 768 + 512 + 512 + 256 + 1152 + 64 + 384);
  EXPECT_EQ(config["total_params"].get<int>() - config["trainable_params"].get<int>(), 40 * 16 + 24 * 16);
  EXPECT_GT(config["real_tokens"].get<int>(), 0);

  const LogFile log = *read_log(dir + "/log.jsonl");
  std::int64_t steps = 0;
  for (const LogRecord& record : log.records) {
    if (record.event != "step") continue;
    EXPECT_EQ(record.step, steps++);
    EXPECT_EQ(record.loss.size(), 3u);
    EXPECT_NEAR(record.acceptance_length, 1 + record.full_acc[0] + record.full_acc[1] + record.full_acc[2],
                1e-9);
    EXPECT_GT(record.fill_ratio, 0);
    EXPECT_LE(record.fill_ratio, 1);
  }
  EXPECT_EQ(steps, total);
  EXPECT_EQ(log.records.front().event, "start");
  EXPECT_EQ(log.records.back().event, "end");
  EXPECT_EQ(static_cast<std::int64_t>(lines.size()), total + options.epochs);  // and one per validation
  EXPECT_EQ(read_status(dir + "/status.json")->phase, "done");
  EXPECT_THAT(watcher_.notes, testing::HasSubstr("memory:"));
  EXPECT_THAT(watcher_.notes, testing::HasSubstr("to go"));
  EXPECT_THAT(watcher_.notes, testing::HasSubstr("an even guess would cost 3.178"));  // ln 24
  // Warm-up: step 0 has rate 0, so step 1 sees step 0's weights.
  EXPECT_EQ(log.records[1].lr, 0);
}

TEST_F(TrainRun, ResumedAtAnyPointEqualsNeverStopped) {
  ASSERT_TRUE(run(options("whole")).ok());
  const std::int64_t total = (*read_json_file(root_ + "/whole/train_config.json"))["total_steps"];
  const std::int64_t batches = (*read_json_file(root_ + "/whole/train_config.json"))["train_batches"];
  for (const std::int64_t stop :
       {std::int64_t{1}, std::int64_t{3}, batches - 1, batches, batches + 2, total - 1, total}) {
    const std::string name = "stopped" + std::to_string(stop);
    const Status stopped = run_and_stop(options(name), static_cast<std::uint64_t>(stop));
    ASSERT_EQ(stopped.code(), StatusCode::kInterrupted) << stopped.message();
    EXPECT_EQ(read_status(root_ + "/" + name + "/status.json")->phase, "interrupted");
    const Result<TrainReport> resumed = run(options(name));
    ASSERT_TRUE(resumed.ok()) << resumed.status().message();
    EXPECT_EQ(resumed->resumed_from_step, stop - 1);
    expect_same_checkpoint("whole", name, checkpoint_name(total - 1));
    EXPECT_EQ(fs::read_symlink(root_ + "/whole/checkpoints/best"),
              fs::read_symlink(root_ + "/" + name + "/checkpoints/best"));
    std::vector<std::int64_t> steps;
    for (const LogRecord& record : effective_records(records_of(name)))
      if (record.event == "step") steps.push_back(record.step);
    ASSERT_EQ(static_cast<std::int64_t>(steps.size()), total);
    for (std::int64_t i = 0; i < total; ++i) EXPECT_EQ(steps[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(TrainRun, TwoStopsInOneRunAndTheScheduleGoesOn) {
  TrainOptions linear = options("whole");
  linear.scheduler_type = "linear";
  linear.lr = 1e-4;
  linear.warmup_steps = 4;
  linear.scheduler_total_steps = 1000;
  linear.max_steps = 14;
  ASSERT_TRUE(run(linear).ok());
  linear.output_dir = root_ + "/twice";
  ASSERT_EQ(run_and_stop(linear, 5).code(), StatusCode::kInterrupted);
  ASSERT_EQ(run_and_stop(linear, 9).code(), StatusCode::kInterrupted);
  ASSERT_TRUE(run(linear).ok());
  expect_same_checkpoint("whole", "twice", checkpoint_name(13));
  Schedule schedule{Schedule::Kind::kLinear, 1e-4, 4, 1000, 0.5, 0};
  for (const LogRecord& record : records_of("twice")) {
    if (record.event == "step") {
      EXPECT_EQ(record.lr, schedule.rate(record.step)) << record.step;
    }
  }
}

TEST_F(TrainRun, LongerRunOnTheSameScheduleContinues) {
  TrainOptions first = options("long");
  first.scheduler_total_steps = 100;
  first.max_steps = 6;
  first.checkpoint_every_steps = 2;
  ASSERT_TRUE(run(first).ok());
  first.max_steps = 9;
  const Result<TrainReport> more = run(first);
  ASSERT_TRUE(more.ok()) << more.status().message();
  EXPECT_EQ(more->resumed_from_step, 5);
  EXPECT_EQ(more->steps, 9);
  // With the schedule tied to the run's length the same wish would bend the rates: refused by name.
  TrainOptions tied = options("tied");
  tied.max_steps = 6;
  ASSERT_TRUE(run(tied).ok());
  tied.max_steps = 9;
  const Status refused = run(tied).status();
  EXPECT_EQ(refused.code(), StatusCode::kConfig);
  EXPECT_THAT(refused.what(), testing::HasSubstr("scheduler_total_steps: 6 then, 9 now"));
}

TEST_F(TrainRun, FinishedRunIsLeftAlone) {
  ASSERT_TRUE(run(options("run")).ok());
  const std::string log = *read_file(root_ + "/run/log.jsonl");
  fs::remove(root_ + "/run/checkpoints/latest");  // as if killed between saving and linking
  const Result<TrainReport> again = run(options("run"));
  ASSERT_TRUE(again.ok());
  EXPECT_GT(again->held_out_acceptance_length, 1);
  EXPECT_EQ(again->steps, again->total_steps);
  EXPECT_EQ(*read_file(root_ + "/run/log.jsonl"), log);
  EXPECT_THAT(watcher_.notes, testing::HasSubstr("nothing to do"));
  EXPECT_TRUE(path_exists(root_ + "/run/checkpoints/latest/COMPLETE"));
}

TEST_F(TrainRun, ChangedSettingsAreRefusedByName) {
  ASSERT_EQ(run_and_stop(options("run"), 3).code(), StatusCode::kInterrupted);
  const auto refused = [&](const std::function<void(TrainOptions&)>& change, const std::string& name) {
    TrainOptions changed = options("run");
    change(changed);
    const Status status = run(changed).status();
    EXPECT_EQ(status.code(), StatusCode::kConfig) << name;
    EXPECT_THAT(status.what(), testing::HasSubstr(name + ":"));
  };
  refused([](TrainOptions& o) { o.seed = 7; }, "seed");
  refused([](TrainOptions& o) { o.ttt_steps = 2; }, "ttt_steps");
  refused([](TrainOptions& o) { o.draft_vocab_size = 25; }, "draft_vocab_size");
  refused([](TrainOptions& o) { o.draft_vocab_size = 0; }, "draft_vocab_size");
  refused([](TrainOptions& o) { o.lr = 0.5; }, "lr");
  refused([](TrainOptions& o) { o.hold_out_every = 4; }, "hold_out_every");
  refused([](TrainOptions& o) { o.epochs = 5; }, "scheduler_total_steps");
  refused([](TrainOptions& o) { o.norm_output = true; }, "norm_output");
  const std::string other = root_ + "/more_states";
  toy::write_store(other, toy::header(), 23);
  refused([&](TrainOptions& o) { o.store_path = other; }, "store_fingerprint");
  EXPECT_TRUE(run(options("run")).ok());
}

TEST_F(TrainRun, BrokenNewestIsPassedOverAndNotDeleted) {
  TrainOptions every = options("run");
  every.checkpoint_every_steps = 3;
  every.max_steps = 13;
  ASSERT_TRUE(run(every).ok());
  expect_same_checkpoint("run", "run", checkpoint_name(12));
  const std::string checkpoints = every.output_dir + "/checkpoints/";
  const std::string good = *read_file(checkpoints + "step-000012/model.safetensors");
  fs::resize_file(checkpoints + "step-000012/model.safetensors", 1000);
  fs::remove(checkpoints + "step-000009/COMPLETE");
  fs::create_directories(checkpoints + "step-000013.tmp");
  TrainOptions named = every;
  named.resume_from = "step-000012";
  EXPECT_EQ(run(named).status().code(), StatusCode::kDataLoss);
  const Result<TrainReport> report = run(every);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->resumed_from_step, 6);
  EXPECT_THAT(watcher_.notes,
              testing::HasSubstr("step-000012 is passed over: model.safetensors has 1000 of"));
  EXPECT_THAT(watcher_.notes, testing::HasSubstr("step-000009 is passed over"));
  EXPECT_THAT(watcher_.notes, testing::HasSubstr("step-000013.tmp is passed over"));
  EXPECT_TRUE(path_exists(checkpoints + "step-000012.broken-1"));
  EXPECT_TRUE(path_exists(checkpoints + "step-000009.broken-1"));
  EXPECT_FALSE(path_exists(checkpoints + "step-000013.tmp"));
  EXPECT_EQ(*read_file(checkpoints + "step-000012/model.safetensors"), good);
}

TEST_F(TrainRun, OnlyBrokenCheckpointsDoNotMeanStepZero) {
  ASSERT_EQ(run_and_stop(options("run"), 3).code(), StatusCode::kInterrupted);
  const std::string folder = root_ + "/run/checkpoints/step-000002";
  fs::resize_file(folder + "/model.safetensors", 10);
  const Status refused = run(options("run")).status();
  EXPECT_EQ(refused.code(), StatusCode::kConfig);
  EXPECT_THAT(refused.what(), testing::HasSubstr("step-000002"));
  EXPECT_TRUE(path_exists(folder));
  TrainOptions over = options("run");
  over.start_over = true;
  const Result<TrainReport> report = run(over);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->resumed_from_step, -1);
  EXPECT_TRUE(path_exists(root_ + "/run/previous-1/checkpoints/step-000002"));
  EXPECT_TRUE(path_exists(root_ + "/run/previous-1/log.jsonl"));
}

TEST_F(TrainRun, KilledBeforeTheFirstCheckpointStartsAgain) {
  fs::create_directories(root_ + "/run/checkpoints/step-000002.tmp");
  const Result<TrainReport> report = run(options("run"));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->resumed_from_step, -1);
}

TEST_F(TrainRun, MissingOptimizerStateNeedsTheSwitch) {
  TrainOptions every = options("run");
  every.checkpoint_every_steps = 3;
  ASSERT_EQ(run_and_stop(every, 5).code(), StatusCode::kInterrupted);
  fs::remove(root_ + "/run/checkpoints/step-000004/" + std::string(kOptimizerFile));
  const Status refused = run(every).status();
  EXPECT_EQ(refused.code(), StatusCode::kConfig);
  EXPECT_THAT(refused.todo(), testing::HasSubstr("--allow-missing-optimizer"));
  every.allow_missing_optimizer = true;
  EXPECT_EQ(run_and_stop(every, 6).code(), StatusCode::kInterrupted);
  EXPECT_THAT(watcher_.notes, testing::HasSubstr("warning: step-000004 is not complete"));
  // The trainer state may be absent too: the place in the data follows from the step.
  fs::remove(root_ + "/run/checkpoints/step-000005/" + std::string(kTrainerStateFile));
  const Result<TrainReport> report = run(every);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->resumed_from_step, 5);
}

TEST_F(TrainRun, NamedOlderCheckpointLeavesTheNewerOnesAside) {
  TrainOptions every = options("run");
  every.checkpoint_every_steps = 3;
  every.max_steps = 10;
  ASSERT_TRUE(run(every).ok());
  const std::string good = *read_file(root_ + "/run/checkpoints/step-000009/model.safetensors");
  every.resume_from = "step-000003";
  ASSERT_TRUE(run(every).ok());
  EXPECT_TRUE(path_exists(root_ + "/run/checkpoints/step-000009.left-1"));
  EXPECT_EQ(*read_file(root_ + "/run/checkpoints/step-000009/model.safetensors"), good);
  every.resume_from.clear();
  every.no_resume = true;
  EXPECT_EQ(run(every).status().code(), StatusCode::kConfig);
}

TEST_F(TrainRun, KeepsTheNewestAndTheBest) {
  TrainOptions every = options("run");
  every.checkpoint_every_steps = 1;
  every.validate_every_steps = 2;
  every.keep_checkpoints = 2;
  every.max_steps = 9;
  const Result<TrainReport> report = run(every);
  ASSERT_TRUE(report.ok());
  const auto names = checkpoint_names(root_ + "/run/checkpoints");
  EXPECT_LE(names->size(), 3u);
  EXPECT_GE(names->size(), 2u);
  EXPECT_EQ(names->back(), "step-000008");
  EXPECT_TRUE(check_folder(report->best_checkpoint).whole);
}

TEST_F(TrainRun, WarmStartFromACheckpointLoadsIt) {
  ASSERT_TRUE(run(options("first")).ok());
  TrainOptions warm = options("warm");
  warm.from = root_ + "/first/checkpoints/latest";
  warm.draft_vocab_size = 0;
  const Result<TrainReport> report = run(warm);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(watcher_.notes, testing::HasSubstr("tensors loaded"));
  EXPECT_EQ((*read_json_file(root_ + "/warm/train_config.json"))["draft_vocab_size"], 24);
  EXPECT_LT(report->first_loss, records_of("first")[1].total_loss);
  warm.output_dir = root_ + "/wrong";
  warm.draft_vocab_size = 30;
  EXPECT_EQ(run(warm).status().code(), StatusCode::kInvalidArgument);
  warm.draft_vocab_size = 0;
  warm.fc_norm = true;
  EXPECT_THAT(run(warm).status().what(), testing::HasSubstr("--fc-norm"));
}

TEST_F(TrainRun, FullDiskLeavesTheEarlierCheckpointWhole) {
  TrainOptions every = options("run");
  every.checkpoint_every_steps = 2;
  every.validate_every_steps = 100;
  every.max_steps = 8;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  watcher_.on_update = [&](std::uint64_t done) {
    if (done < 4) return;
    rlimit small = before;
    small.rlim_cur = 8192;  // the weights take more: write(2) fails as on a full disk
    setrlimit(RLIMIT_FSIZE, &small);
  };
  const Status full = run(every).status();
  setrlimit(RLIMIT_FSIZE, &before);
  watcher_.on_update = {};
  EXPECT_EQ(full.code(), StatusCode::kNoSpace) << full.message();
  EXPECT_THAT(full.what(), testing::HasSubstr("the last good one is step-000002"));
  EXPECT_THAT(*list_directory(every.output_dir + "/checkpoints"),
              testing::ElementsAre("latest", "step-000002"));
  const Result<TrainReport> report = run(every);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->resumed_from_step, 2);
}

TEST_F(TrainRun, StatesOfAnotherTargetAreRefusedNamingBoth) {
  StoreHeader other = toy::header();
  other.target_identity = "ffffffffffffffff";
  other.target_name = "someone else";
  toy::write_store(root_ + "/other", other);
  TrainOptions wrong = options("run");
  wrong.store_path = root_ + "/other";
  const Status status = run(wrong).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.what(), testing::AllOf(testing::HasSubstr("someone else"), testing::HasSubstr("toy")));
}

TEST_F(TrainRun, UnusableInputsAreErrorsThatSayWhatToDo) {
  const auto fails = [&](const std::function<void(TrainOptions&)>& change, const std::string& text) {
    TrainOptions bad = options("bad");
    change(bad);
    Status status = check_train_options(bad);
    if (status.ok()) status = run(bad).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(status.message(), testing::HasSubstr(text));
    EXPECT_FALSE(status.todo().empty()) << text;
  };
  fails([](TrainOptions& o) { o.max_seq_len = 0; }, "--max-seq-len");
  fails([](TrainOptions& o) { o.max_seq_len = 8; }, "shorter than every document");
  fails([](TrainOptions& o) { o.draft_vocab_size = 41; }, "larger than the target's");
  fails([](TrainOptions& o) { o.store_path = "/no/such/store"; }, "/no/such/store");
  fails([](TrainOptions& o) { o.from = "/no/such/draft"; }, "/no/such/draft");
  fails([](TrainOptions& o) { o.loss_fn = "huber"; }, "huber");
  fails([](TrainOptions& o) { o.scheduler_type = "step"; }, "--scheduler-type");
  fails([](TrainOptions& o) { o.scheduler_total_steps = 3; }, "--scheduler-total-steps");
  toy::write_store(root_ + "/mute", toy::header(), 6, 1000);
  fails([&](TrainOptions& o) { o.store_path = root_ + "/mute"; }, "has a supervised token");
  toy::write_store(root_ + "/one", toy::header(), 1);
  fails([&](TrainOptions& o) { o.store_path = root_ + "/one"; }, "all are held out");
}

TEST_F(TrainRun, WithoutHeldOutDocumentsBestIsTheLatest) {
  TrainOptions none = options("run");
  none.hold_out_every = 0;
  none.epochs = 1;
  const Result<TrainReport> report = run(none);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->best_checkpoint, report->last_checkpoint);
  EXPECT_EQ(report->held_out_acceptance_length, 0);
  EXPECT_EQ(fs::read_symlink(root_ + "/run/checkpoints/best"),
            fs::read_symlink(root_ + "/run/checkpoints/latest"));
}

}  // namespace
}  // namespace eaglet
