// Training on several devices: ranks are processes, each with an emulated device of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "comm/device_ranks.h"
#include "rank_processes.h"
#include "train/checkpoint_folder.h"
#include "train/toy_fixture_test.h"

namespace eaglet {
namespace {

using test::accelerator;
using test::Expected;
using testing::HasSubstr;

class TrainOnDevices : public toy::TrainRun {
 protected:
  // Three batches an epoch, two updates of two ranks: in the second one rank has none. Of four ranks one
  // never has any.
  void SetUp() override {
    toy::TrainRun::SetUp();
    store_ = root_ + "/few";
    toy::write_store(store_, toy::header(), 7);
  }
  TrainOptions device_options(const std::string& name) {
    TrainOptions o = options(name);
    o.max_steps = 4;
    o.warmup_steps = 1;
    o.hold_out_every = 4;
    o.lr = 3e-3;
    return o;
  }

  // On this rank: its own device, and gradients between devices.
  Status train_here(std::unique_ptr<Comm>& comm, TrainOptions options, double timeout_seconds = 30) {
    if (comm->ranks() > 1) {
      auto devices = open_device_ranks(*comm, {timeout_seconds});
      if (!devices.ok()) return devices.status();
      comm = with_device_ranks(std::move(comm), std::move(*devices));
    }
    options.comm = comm.get();
    options.device = accelerator();
    const Status status = run(options).status();
    if (!status.ok()) comm->leave(status);
    return status;
  }
  void train_on(int ranks, const TrainOptions& options) {
    test::as_ranks(ranks, {}, [&](std::unique_ptr<Comm>& comm) {
      const Status status = train_here(comm, options);
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }

  void expect_same_curve(const std::string& ours, const std::string& theirs) {
    const std::vector<LogRecord> a = records_of(ours), b = records_of(theirs);
    ASSERT_EQ(a.size(), b.size());
    int steps = 0, validations = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].event, b[i].event);
      if (a[i].event != "step" && a[i].event != "validation") continue;
      ++(a[i].event == "step" ? steps : validations);
      EXPECT_NEAR(a[i].total_loss, b[i].total_loss, 1e-6 * b[i].total_loss) << a[i].event << " " << a[i].step;
      EXPECT_NEAR(a[i].acceptance_length, b[i].acceptance_length, 1e-6);
      EXPECT_TRUE(a[i].event != "step" || std::abs(a[i].grad_norm - b[i].grad_norm) <= 1e-6 * b[i].grad_norm);
    }
    EXPECT_EQ(steps, 4);
    EXPECT_GT(validations, 0);
  }
};

TEST_F(TrainOnDevices, RanksLearnWhatOneDoesWithAsManyBatches) {
  for (const int ranks : {2, 4}) {
    const std::string count = std::to_string(ranks);
    TrainOptions alone = device_options("alone" + count), together = device_options("together" + count);
    alone.accumulation_steps = ranks;
    train_on(1, alone);
    train_on(ranks, together);
    expect_same_curve("together" + count, "alone" + count);
    TrainOptions shared = device_options("shared" + count);
    shared.shard_optimizer = true;
    train_on(ranks, shared);
    expect_same_checkpoint("together" + count, "shared" + count, checkpoint_name(3));
  }
}

TEST_F(TrainOnDevices, MatricesOfMuonAreSharedOut) {
  TrainOptions together = device_options("together"), shared = device_options("shared");
  together.optimizer = shared.optimizer = "muon";
  shared.shard_optimizer = true;
  train_on(2, together);
  train_on(2, shared);
  expect_same_checkpoint("together", "shared", checkpoint_name(3));
}

// Stopped by a signal to one rank only.
TEST_F(TrainOnDevices, ResumedIsNeverStopped) {
  TrainOptions o = device_options("whole");
  o.shard_optimizer = true;
  train_on(2, o);
  o.output_dir = root_ + "/stopped";
  test::as_ranks(2, {}, [&](std::unique_ptr<Comm>& comm) {
    if (comm->rank() == 1)
      watcher_.on_update = [](std::uint64_t done) {
        if (done >= 2) set_interrupt_for_test(SIGTERM);
      };
    EXPECT_EQ(train_here(comm, o).code(), StatusCode::kInterrupted);
    EXPECT_TRUE(comm->rank() > 0 || path_exists(o.output_dir + "/checkpoints/latest"));
    set_interrupt_for_test(0);
  });
  train_on(2, o);
  EXPECT_EQ(records_of("stopped").size(), records_of("whole").size() + 3);  // checkpoint, end, resume
  expect_same_checkpoint("whole", "stopped", checkpoint_name(3));
}

TEST_F(TrainOnDevices, ALostRankEndsTheOthersWithItsName) {
  test::as_ranks(2, {true, 1, 0}, [&](std::unique_ptr<Comm>& comm) {
    if (comm->rank() == 1)
      watcher_.on_update = [](std::uint64_t done) {
        if (done >= 2) ::_exit(test::kKilled);
      };
    const Status status = train_here(comm, device_options("run"));
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.what(), HasSubstr("rank 1 of 2"));
    EXPECT_THAT(status.what(), HasSubstr("is gone"));
  });
}

TEST_F(TrainOnDevices, ARankThatDoesNotComeIsNamedWhenTheTimeIsOver) {
  test::as_ranks(2, {true, 1, 4}, [&](std::unique_ptr<Comm>& comm) {
    if (comm->rank() == 1)
      watcher_.on_update = [](std::uint64_t done) {
        if (done < 2) return;
        ::sleep(15);
        ::_exit(test::kKilled);
      };
    const Status status = train_here(comm, device_options("run"), 4);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.what(), HasSubstr("rank 1 of 2"));
    EXPECT_THAT(status.what(), HasSubstr("though it lives"));
  });
}

// A rank that cannot read its states tells the others why, in the middle of an update.
TEST_F(TrainOnDevices, AReasonReachesTheOthers) {
  test::as_ranks(2, {}, [&](std::unique_ptr<Comm>& comm) {
    const int rank = comm->rank();
    if (rank == 1)
      watcher_.on_update = [](std::uint64_t done) {
        if (done >= 2) throw std::runtime_error("planted");
      };
    TrainOptions o = device_options("run");
    Status status;
    try {
      status = train_here(comm, o);
    } catch (const std::runtime_error&) {
      comm->leave(Status(StatusCode::kDataLoss, "bad document", "shard 7"));
      return;
    }
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.what(), HasSubstr("rank 1 of 2"));
    EXPECT_THAT(status.what(), HasSubstr("bad document (shard 7)"));
  });
}

}  // namespace
}  // namespace eaglet
