// The trainer with a device: what it learns, where it goes on, what it writes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "formats/json.h"
#include "ops/device_test.h"
#include "train/checkpoint_folder.h"
#include "train/toy_fixture_test.h"

namespace eaglet {
namespace {

using test::accelerator;
using testing::HasSubstr;

class TrainOnDevice : public toy::TrainRun {
 protected:
  void SetUp() override {
    if (accelerator() == nullptr) GTEST_SKIP() << "no device";
    TrainRun::SetUp();
  }
  // A few updates in bf16 products on a store of one batch an epoch, one validation.
  TrainOptions device_options(const std::string& name) {
    store_ = root_ + "/few";
    if (!path_exists(store_)) toy::write_store(store_, toy::header(), 3);
    TrainOptions o = options(name);
    o.device = accelerator();
    o.compute_type = "auto";
    o.max_seq_len = 48;
    o.warmup_steps = 1;
    o.max_steps = 4;
    return o;
  }
  std::vector<double> losses_of(const std::string& name) {
    std::vector<double> losses;
    for (const LogRecord& record : records_of(name))
      if (record.event == "step") losses.push_back(record.total_loss);
    return losses;
  }
};

TEST_F(TrainOnDevice, LearnsWhatTheHostLearns) {
  TrainOptions on_device = device_options("device"), on_host = device_options("host");
  on_host.device = nullptr;
  on_device.compute_type = on_host.compute_type = "f32";
  const auto device = run(on_device);
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(device->device, accelerator()->name());
  EXPECT_THAT(watcher_.notes, HasSubstr("device: " + accelerator()->name()));
  const auto host = run(on_host);
  ASSERT_TRUE(host.ok()) << host.status().message();
  EXPECT_EQ(host->device, "cpu");
  const std::vector<double> ours = losses_of("device"), theirs = losses_of("host");
  ASSERT_EQ(ours.size(), 4u);
  ASSERT_EQ(theirs.size(), ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-4 * theirs[i]) << i;
  EXPECT_LT(ours.back(), ours.front());
  EXPECT_NEAR(device->held_out_acceptance_length, host->held_out_acceptance_length, 1e-3);
  const Json config = *read_json_file(root_ + "/device/train_config.json");
  EXPECT_EQ(config["device"], accelerator()->name());
}

TEST_F(TrainOnDevice, ProductsAreBf16UnlessAskedOtherwise) {
  TrainOptions o = device_options("run");
  o.max_steps = 1;
  const auto report = run(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->compute_type, "bf16");
}

// Stopped twice and resumed, the run ends in the same bytes. Under Muon norms and head learn by AdamW, so
// both are here.
TEST_F(TrainOnDevice, ResumedIsNeverStopped) {
  TrainOptions o = device_options("whole");
  store_ = root_ + "/states";  // several batches an epoch
  o.store_path = store_;
  o.max_seq_len = 32;
  o.hold_out_every = 0;
  o.optimizer = "muon";
  o.accumulation_steps = 2;
  o.max_steps = 3;
  const auto whole = run(o);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  o.output_dir = root_ + "/stopped";
  for (const std::uint64_t stop : {1, 2}) {
    const Status stopped = run_and_stop(o, stop);
    ASSERT_EQ(stopped.code(), StatusCode::kInterrupted) << stopped.message();
  }
  ASSERT_TRUE(run(o).ok());
  expect_same_checkpoint("whole", "stopped", checkpoint_name(2));
}

TEST_F(TrainOnDevice, ARunOfTheHostGoesOnWithAWord) {
  TrainOptions o = device_options("run");
  o.device = nullptr;
  o.compute_type = "f32";
  ASSERT_EQ(run_and_stop(o, 2).code(), StatusCode::kInterrupted);
  o.device = accelerator();
  const auto report = run(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->resumed_from_step, 1);
  EXPECT_THAT(watcher_.notes, HasSubstr("begun on cpu, now on " + accelerator()->name()));
}

// Weights that run away are found on the device and named from there.
TEST_F(TrainOnDevice, NumbersThatAreNotFiniteAreNamed) {
  TrainOptions o = device_options("run");
  o.lr = 1e30;
  o.clip = 0;
  o.warmup_steps = 0;
  const Status status = run(o).status();
  EXPECT_EQ(status.code(), StatusCode::kNumeric) << status.message();
  EXPECT_THAT(status.what(), HasSubstr("not finite"));
}

}  // namespace
}  // namespace eaglet
