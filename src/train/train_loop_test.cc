// What `eaglet train` offers beside the plain loop: Muon, accumulation, noise, limits, signals, bad numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <regex>

#include "base/interrupt.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "train/checkpoint_folder.h"
#include "train/toy_fixture_test.h"
#include "train/train_run.h"
#include "train/train_settings.h"

namespace eaglet {
namespace {

using testing::HasSubstr;
using toy::TrainRun;
class TrainLoop : public TrainRun {
 protected:
  std::int64_t total_steps(const std::string& run) {
    return (*read_json_file(root_ + "/" + run + "/train_config.json"))["total_steps"];
  }
  std::string last_weights(const std::string& run) {
    return *read_file(root_ + "/" + run + "/checkpoints/latest/model.safetensors");
  }
  // Stopped at several points and resumed, the run ends in the same bytes.
  void expect_resume_changes_nothing(const TrainOptions& like) {
    TrainOptions options = like;
    options.output_dir = root_ + "/whole";
    const auto whole = run(options);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    options.output_dir = root_ + "/stopped";
    for (const std::uint64_t stop : {2, 5}) {
      const Status stopped = run_and_stop(options, stop);
      ASSERT_EQ(stopped.code(), StatusCode::kInterrupted) << stopped.message();
    }
    ASSERT_TRUE(run(options).ok());
    expect_same_checkpoint("whole", "stopped", checkpoint_name(whole->total_steps - 1));
  }
};

TEST_F(TrainLoop, MuonLearnsAndResumesBitEqual) {
  TrainOptions muon = options("muon");
  muon.optimizer = "muon";
  muon.muon_lr = 5e-3;
  expect_resume_changes_nothing(muon);
  const auto records = records_of("whole");
  std::vector<double> losses;
  for (const LogRecord& record : records)
    if (record.event == "step") losses.push_back(record.total_loss);
  EXPECT_LT(losses.back(), losses.front());
  const auto state =
      SafetensorsFile::open(root_ + "/whole/checkpoints/latest/" + std::string(kOptimizerFile));
  EXPECT_NE(state->find("momentum_buffer.fc.weight"), nullptr);
  EXPECT_EQ(state->find("momentum_buffer.lm_head.weight"), nullptr);
  EXPECT_EQ((*read_json_file(root_ + "/whole/train_config.json"))["muon_lr"], 5e-3);
  TrainOptions other = muon;
  other.output_dir = root_ + "/whole";
  other.optimizer = "adamw";
  EXPECT_THAT(run(other).status().what(), HasSubstr("optimizer: \"muon\" then, \"adamw\" now"));
}

TEST_F(TrainLoop, AccumulationTakesFewerStepsAndResumesBitEqual) {
  TrainOptions three = options("three");
  three.accumulation_steps = 3;
  expect_resume_changes_nothing(three);
  const Json config = *read_json_file(root_ + "/whole/train_config.json");
  const std::int64_t batches = config["train_batches"];
  EXPECT_NE(batches % 3, 0);  // the last update of an epoch is a smaller one
  EXPECT_EQ(config["total_steps"].get<std::int64_t>(), 2 * ((batches + 2) / 3));
  TrainOptions other = three;
  other.output_dir = root_ + "/whole";
  other.accumulation_steps = 2;
  EXPECT_THAT(run(other).status().what(), HasSubstr("batches_per_update: 3 then, 2 now"));
}

// One update over a whole epoch sees the same rows however they are packed and in whichever order.
TEST_F(TrainLoop, PackingDoesNotChangeAnUpdateOverAll) {
  std::vector<double> losses, norms;
  ASSERT_TRUE(run(options("start")).ok());
  for (const std::int64_t rows : {32, 64, 100}) {
    for (const std::uint64_t seed : {1, 2}) {
      TrainOptions all = options("rows" + std::to_string(rows) + "_" + std::to_string(seed));
      all.from = root_ + "/start/checkpoints/latest";
      all.draft_vocab_size = 0;
      all.max_seq_len = rows;
      all.seed = seed;
      all.accumulation_steps = 1000;
      all.epochs = 2;
      const auto report = run(all);
      ASSERT_TRUE(report.ok()) << report.status().message();
      for (const LogRecord& record : records_of("rows" + std::to_string(rows) + "_" + std::to_string(seed)))
        if (record.event == "step" && record.step == 0) {
          losses.push_back(record.total_loss);
          norms.push_back(record.grad_norm);
        }
    }
  }
  ASSERT_EQ(losses.size(), 6u);
  for (std::size_t i = 1; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], losses[0], 1e-5 * losses[0]);
    EXPECT_NEAR(norms[i], norms[0], 1e-4 * norms[0]);
  }
}

TEST_F(TrainLoop, NoiseIsSeededAndResumable) {
  TrainOptions noisy = options("noisy");
  noisy.noise_std = 0.1;
  expect_resume_changes_nothing(noisy);
  ASSERT_TRUE(run(options("plain")).ok());
  EXPECT_NE(last_weights("whole"), last_weights("plain"));
}

TEST_F(TrainLoop, WarmupByShare) {
  TrainOptions share = options("share");
  share.warmup_steps = -1;
  share.warmup_ratio = 0.5;
  ASSERT_TRUE(run(share).ok());
  EXPECT_EQ((*read_json_file(root_ + "/share/train_config.json"))["warmup_steps"], total_steps("share") / 2);
}

TEST_F(TrainLoop, MaxTimeSavesAndTheSameCommandGoesOn) {
  TrainOptions short_time = options("short");
  short_time.max_time = "0.0001s";
  const auto first = run(short_time);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->steps, 1);
  EXPECT_THAT(watcher_.notes, HasSubstr("--max-time 0.0001s is over"));
  EXPECT_TRUE(check_folder(root_ + "/short/checkpoints/step-000000").whole);
  EXPECT_EQ(records_of("short").back().event, "end");
  const auto second = run(short_time);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->steps, 1);  // time is up before the first step of that process as well: nothing is lost
  short_time.max_time.clear();
  EXPECT_TRUE(run(short_time).ok());
  ASSERT_TRUE(run(options("whole")).ok());
  EXPECT_EQ(last_weights("short"), last_weights("whole"));
}

TEST_F(TrainLoop, EarlyStopAfterValidationsThatAreNotBetter) {
  TrainOptions patient = options("patient");
  patient.lr = 1e-20;  // nothing changes, so nothing gets better
  patient.validate_every_steps = 2;
  patient.early_stop_patience = 2;
  const auto report = run(patient);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->steps, 7);  // after step 2 the best, after 4 and 6 no better one
  EXPECT_THAT(watcher_.notes, HasSubstr("2 validations without a better acceptance length"));
  EXPECT_EQ(std::filesystem::read_symlink(root_ + "/patient/checkpoints/best").string(), "step-000002");
  EXPECT_TRUE(run(patient).ok());
  EXPECT_THAT(watcher_.notes, HasSubstr("nothing to do"));
}

TEST_F(TrainLoop, SigUsr1SavesAndGoesOn) {
  install_interrupt_handlers();
  TrainOptions plain = options("run");
  plain.validate_every_steps = 100;
  plain.checkpoint_every_steps = 100;
  watcher_.on_update = [](std::uint64_t done) {
    if (done != 4) return;
    ::kill(::getpid(), SIGUSR1);
    ::usleep(20000);  // another thread hears it
  };
  const auto report = run(plain);
  watcher_.on_update = {};
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->steps, report->total_steps);
  std::smatch note;  // a step or two may have been done before it was heard
  ASSERT_TRUE(std::regex_search(watcher_.notes, note, std::regex("SIGUSR1: saving after step ([3-9])")))
      << watcher_.notes;
  EXPECT_TRUE(check_folder(root_ + "/run/checkpoints/step-00000" + note[1].str()).whole);
}

TEST_F(TrainLoop, RunawayWeightsAreNamed) {
  TrainOptions wild = options("wild");
  wild.lr = 1e39;  // beyond fp32
  const Status status = run(wild).status();
  EXPECT_EQ(status.code(), StatusCode::kNumeric);
  EXPECT_THAT(status.what(), HasSubstr("not finite at step 2"));  // step 0 has rate 0, step 1 broke them
  EXPECT_THAT(status.what(), HasSubstr("weights of fc.weight"));
  EXPECT_THAT(status.where(), HasSubstr("documents d"));
  EXPECT_THAT(status.todo(), HasSubstr("--on-not-finite skip"));
  EXPECT_EQ(records_of("wild").back().event, "warning");
  TrainOptions every = wild;
  every.output_dir = root_ + "/every";
  every.checkpoint_every_steps = 1;
  const Status unsaved = run(every).status();
  EXPECT_EQ(unsaved.code(), StatusCode::kNumeric);
  EXPECT_THAT(unsaved.what(), HasSubstr("after step 1 weights of fc.weight"));
  EXPECT_FALSE(path_exists(root_ + "/every/checkpoints/step-000001"));
  wild.output_dir = root_ + "/wild_skip";
  wild.on_not_finite = "skip";
  wild.max_steps = 30;
  wild.validate_every_steps = 100;
  wild.checkpoint_every_steps = 100;
  const Status given_up = run(wild).status();
  EXPECT_EQ(given_up.code(), StatusCode::kNumeric);
  EXPECT_THAT(given_up.what(), HasSubstr("11 updates in a row"));
}

// States that are finite themselves, but overflow in the first product with weights of about 1.
TEST_F(TrainLoop, ABadDocumentIsSkippedAndCounted) {
  auto writer = StoreWriter::open(store_ + "_bad", toy::header());
  ASSERT_TRUE(writer.ok());
  for (int i = 0; i < 12; ++i) {
    DocumentStates document = toy::document(i, 28, 4);
    if (i == 7) std::fill(document.states.begin(), document.states.end(), f32_to_bf16(3e38f));
    ASSERT_TRUE((*writer)->append(document).ok());
  }
  ASSERT_TRUE((*writer)->finish().ok());
  TrainOptions options = this->options("stop");
  options.store_path = store_ + "_bad";
  options.lr = 1;
  options.epochs = 3;
  options.scheduler_type = "constant";
  const Status status = run(options).status();
  EXPECT_EQ(status.code(), StatusCode::kNumeric);
  EXPECT_THAT(status.where(), HasSubstr("d7"));
  options.output_dir = root_ + "/skip";
  options.on_not_finite = "skip";
  const auto report = run(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->skipped_updates, 2);  // once an epoch; in the first one the weights are still small
  EXPECT_TRUE(std::isfinite(report->last_loss));
  EXPECT_THAT(watcher_.notes, HasSubstr("documents d7); the update is left out, 2 so far"));
  EXPECT_EQ((*read_json_file(root_ + "/skip/checkpoints/latest/trainer_state.json"))["skipped_updates"], 2);
}

TEST_F(TrainLoop, FirstLossIsJudgedWhereItTellsSomething) {
  TrainOptions slow = options("slow");
  slow.max_steps = 22;
  slow.lr = 1e-12;
  slow.scheduler_type = "constant";
  ASSERT_TRUE(run(slow).ok());
  EXPECT_THAT(watcher_.notes, HasSubstr("first loss"));
  EXPECT_THAT(watcher_.notes, HasSubstr("warning: loss after 20 steps"));
  EXPECT_THAT(watcher_.notes, HasSubstr("it is not learning yet"));
  // A draft that is loaded and does not predict is told at once.
  TrainOptions warm = options("warm");
  warm.from = root_ + "/slow/checkpoints/latest";
  warm.draft_vocab_size = 0;
  ASSERT_TRUE(run(warm).ok());
  EXPECT_THAT(watcher_.notes, HasSubstr("does not predict this target's states"));
}

TEST(TrainSettings, Durations) {
  EXPECT_EQ(seconds_of("300"), 300.0);
  EXPECT_EQ(seconds_of("1.5h"), 5400.0);
  EXPECT_EQ(seconds_of("90m"), 5400.0);
  EXPECT_EQ(seconds_of("1d"), 86400.0);
  for (const char* bad : {"", "h", "-3", "0", "3 weeks", "2h30", "nan"}) EXPECT_FALSE(seconds_of(bad)) << bad;
}

TEST(TrainSettings, CheckpointsFromBeforeASettingExistedGoOn) {
  TrainOptions options = toy::options("s", "o");
  Json before = fixed_settings(options, {});
  for (const char* name : {"optimizer", "batches_per_update", "noise_std", "muon_lr"}) before.erase(name);
  EXPECT_TRUE(check_same_settings(before, fixed_settings(options, {})).ok());
  options.optimizer = "muon";
  EXPECT_FALSE(check_same_settings(before, fixed_settings(options, {})).ok());
}

TEST(TrainSettings, ContradictionsAreNamed) {
  const auto refused = [](const std::string& flag, const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = toy::options("s", "o");
    change(options);
    const Status status = check_train_options(options);
    EXPECT_EQ(status.code(), StatusCode::kUsage) << flag;
    EXPECT_EQ(status.where(), flag);
    EXPECT_FALSE(status.todo().empty());
  };
  refused("--optimizer", [](TrainOptions& o) { o.optimizer = "sgd"; });
  refused("--muon-momentum", [](TrainOptions& o) { o.muon_momentum = 1; });
  refused("--muon-ns-steps", [](TrainOptions& o) { o.muon_ns_steps = 0; });
  refused("--muon-adjust-lr-fn", [](TrainOptions& o) { o.muon_adjust_lr_fn = "x"; });
  refused("--accumulation-steps", [](TrainOptions& o) { o.accumulation_steps = 0; });
  refused("--noise-std", [](TrainOptions& o) { o.noise_std = -1; });
  refused("--warmup-ratio", [](TrainOptions& o) { o.warmup_ratio = 0.1; });  // warmup_steps is set too
  refused("--max-time", [](TrainOptions& o) { o.max_time = "soon"; });
  refused("--early-stop-patience", [](TrainOptions& o) { o.early_stop_patience = -1; });
  refused("--on-not-finite", [](TrainOptions& o) { o.on_not_finite = "ignore"; });
}

}  // namespace
}  // namespace eaglet
