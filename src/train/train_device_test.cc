// The trainer with a device: what it learns, where it goes on, what it writes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "formats/json.h"
#include "ops/device_test.h"
#include "runlog/log_record.h"
#include "runlog/status_file.h"
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

// Of the steps that are logged, at most one a second is measured; the first always.
TEST_F(TrainOnDevice, TheLogTellsTheDevicesTimeByOp) {
  const auto report = run(device_options("run"));
  ASSERT_TRUE(report.ok()) << report.status().message();
  int measured = 0;
  for (const LogRecord& record : records_of("run")) {
    if (record.device_seconds.empty()) continue;
    ++measured;
    EXPECT_EQ(record.event, "step");
    EXPECT_EQ(measured > 1 || record.step == 0, true);
    double products = 0, all = 0;
    for (const auto& [op, seconds] : record.device_seconds) {
      EXPECT_GT(seconds, 0) << op;
      all += seconds;
      if (op == "products") products = seconds;
    }
    EXPECT_GT(products, 0);
    EXPECT_GT(all, products);
  }
  EXPECT_GE(measured, 1);
  const auto status = read_status(root_ + "/run/status.json");
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_FALSE(status->device_seconds.empty());
}

TEST_F(TrainOnDevice, ProductsAreBf16UnlessAskedOtherwise) {
  TrainOptions o = device_options("run");
  o.max_steps = 1;
  const auto report = run(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->compute_type, "bf16");
}

// A store whose states come as fp32 only, as before there was another way.
class FloatsOnly : public StoreReader {
 public:
  explicit FloatsOnly(std::unique_ptr<StoreReader> store) : store_(std::move(store)) {}
  const StoreHeader& header() const override { return store_->header(); }
  const std::vector<StoredDocument>& documents() const override { return store_->documents(); }
  std::uint64_t bytes() const override { return store_->bytes(); }
  Result<DocumentStates> read(std::size_t i) const override { return store_->read(i); }
  Result<DocumentStates> read_tokens(std::size_t i) const override { return store_->read_tokens(i); }
  Status read_states_f32(std::size_t i, const StateRange& range, float* aux, float* last) const override {
    return store_->read_states_f32(i, range, aux, last);
  }
  Status verify() const override { return store_->verify(); }
  Status verify_document(std::size_t i) const override { return store_->verify_document(i); }

 private:
  const std::unique_ptr<StoreReader> store_;
};

// Sent ahead as they are stored, out of the batch or out of the store: the run ends in the bytes of one whose
// states came as fp32. Epochs end within it, and it validates between batches that are ahead already.
TEST_F(TrainOnDevice, StatesAsTheyAreStoredGiveTheBitsOfFp32) {
  for (const StateEncoding encoding : {StateEncoding::kRaw, StateEncoding::kPlanes, StateEncoding::kFp8}) {
    const std::string form = state_encoding_name(encoding);
    SCOPED_TRACE(form);
    StoreHeader header = toy::header();
    if (encoding == StateEncoding::kFp8) header.dtype = Dtype::kF8E4M3;
    const std::string store = root_ + "/" + form;
    auto writer = StoreWriter::open(store, header, {.encoding = encoding, .drop_unsupervised = true});
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE((*writer)->append(toy::document(i, 12 + i, 4)).ok());
    ASSERT_TRUE((*writer)->finish().ok());
    const auto trained = [&](const std::string& name, const std::string& states, bool floats) {
      TrainOptions o = device_options(name);
      o.store_path = store;
      o.max_seq_len = 32;
      o.chunk_rows = 20;
      o.validate_every_steps = 2;
      o.max_steps = 4;
      o.states = states;
      if (floats)
        o.open_store = [&]() -> Result<std::unique_ptr<StoreReader>> {
          EAGLET_ASSIGN_OR_RETURN(auto opened, StoreReader::open(store));
          return std::unique_ptr<StoreReader>(std::make_unique<FloatsOnly>(std::move(opened)));
        };
      const auto report = run(o);
      ASSERT_TRUE(report.ok()) << report.status().message();
    };
    trained(form + "-floats", "load", true);
    trained(form + "-stored", "load", false);
    trained(form + "-streamed", "stream", false);
    for (const char* other : {"-stored", "-streamed"})
      for (const char* file : {"/checkpoints/step-000003/model.safetensors"})
        EXPECT_EQ(*read_file(root_ + "/" + form + "-floats" + file),
                  *read_file(root_ + "/" + form + other + file))
            << other;
    EXPECT_EQ(losses_of(form + "-stored"), losses_of(form + "-floats"));
  }
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
