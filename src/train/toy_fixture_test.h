#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/interrupt.h"
#include "runlog/log_record.h"
#include "train/toy_run_test.h"
#include "train/train_run.h"

namespace eaglet::toy {

class Watcher : public NoProgress {
 public:
  void update(std::uint64_t done, const std::string&) override {
    if (on_update) on_update(done);
  }
  void note(const std::string& text) override { notes += text + "\n"; }
  std::function<void(std::uint64_t)> on_update;
  std::string notes;
};

// Runs over the toy store in a fresh directory.
class TrainRun : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    root_ = fresh_directory(name);
    store_ = root_ + "/states";
    write_store(store_, header());
  }
  void TearDown() override { set_interrupt_for_test(0); }

  TrainOptions options(const std::string& run) { return toy::options(store_, root_ + "/" + run); }

  Result<TrainReport> run(const TrainOptions& options) {
    watcher_.notes.clear();
    std::filesystem::create_directories(options.output_dir);
    return train_on_target(options, toy::target(), toy::weights(), watcher_);
  }

  std::vector<LogRecord> records_of(const std::string& run) {
    const Result<LogFile> log = read_log(root_ + "/" + run + "/log.jsonl");
    return log.ok() ? log->records : std::vector<LogRecord>();
  }

  // Runs until `done` updates were made, then as if SIGTERM had come.
  Status run_and_stop(const TrainOptions& options, std::uint64_t done) {
    watcher_.on_update = [done](std::uint64_t now) {
      if (now >= done) set_interrupt_for_test(SIGTERM);
    };
    const Status status = run(options).status();
    watcher_.on_update = {};
    set_interrupt_for_test(0);
    return status;
  }

  // Every file of a checkpoint, byte for byte.
  void expect_same_checkpoint(const std::string& run_a, const std::string& run_b, const std::string& name) {
    const std::string a = root_ + "/" + run_a + "/checkpoints/" + name,
                      b = root_ + "/" + run_b + "/checkpoints/" + name;
    const auto names = list_directory(a);
    ASSERT_TRUE(names.ok() && names->size() == 5u) << a;
    for (const std::string& file : *names)
      EXPECT_EQ(*read_file(a + "/" + file), *read_file(b + "/" + file)) << file;
  }

  std::string root_, store_;
  Watcher watcher_;
};

}  // namespace eaglet::toy
