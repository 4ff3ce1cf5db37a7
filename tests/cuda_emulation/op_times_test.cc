// Device time by op, held to what the emulation reckons: each op's time goes to its group, to no other, and
// nothing is left out or counted twice.

#include "device/op_times.h"

#include <gtest/gtest.h>

#include "device/cuda_op_times.h"
#include "device/device_feed.h"
#include "device/gemm.h"
#include "emulation.h"
#include "ops/adamw.h"
#include "ops/device_test.h"
#include "ops/rms_norm.h"
#include "ops/rows.h"

namespace eaglet {
namespace {

using test::accelerator;
using test::DeviceFloats;

class OpTimes : public test::OnDevice {
 protected:
  void SetUp() override {
    test::OnDevice::SetUp();
    ASSERT_TRUE(accelerator()->wait().ok());
    accelerator()->take_op_times();
    accelerator()->time_ops(true);
  }
  void TearDown() override {
    accelerator()->time_ops(false);
    test::OnDevice::TearDown();
  }
  // What the body's ops took, after a wait.
  template <class Body>
  static eaglet::OpTimes times_of(const Body& body) {
    body();
    EXPECT_TRUE(accelerator()->wait().ok());
    return accelerator()->take_op_times();
  }
  // Nearly: an event tells milliseconds as a float.
  static void expect_only(OpGroup group, double seconds, const eaglet::OpTimes& times) {
    EXPECT_GT(seconds, 0);
    EXPECT_NEAR(times.of(group), seconds, 1e-4 * seconds) << op_group_name(group);
    EXPECT_NEAR(times.in_line(), seconds, 1e-4 * seconds) << op_group_name(group);
  }
};

TEST_F(OpTimes, EachGroupGetsItsOwn) {
  const DeviceFloats x(64 * 96), y(64 * 96), w(96), inv(64), c(64 * 64);
  (void)times_of([] {});
  const auto taken = [&](const auto& body) {
    const double before = emulation::busy_seconds();
    const eaglet::OpTimes times = times_of(body);
    return std::pair{times, emulation::busy_seconds() - before};
  };
  const auto [norm, norm_seconds] =
      taken([&] { rms_norm(64, 96, x.data(), 96, w.data(), 1e-5, y.data(), 96, inv.data()); });
  expect_only(OpGroup::kNorms, norm_seconds, norm);
  const auto [product, product_seconds] = taken([&] {
    for (int i = 0; i < 3; ++i)
      gemm(Transpose::kNo, Transpose::kYes, 64, 64, 96, 1, x.data(), 96, y.data(), 96, 0, c.data(), 64);
  });
  expect_only(OpGroup::kProducts, product_seconds, product);
  const auto [rows, rows_seconds] = taken([&] { zero_rows(64, 64, c.data()); });
  expect_only(OpGroup::kElementwise, rows_seconds, rows);
  const auto [optimizer, optimizer_seconds] = taken([&] { l2_norm(64 * 64, c.data()); });
  expect_only(OpGroup::kOptimizer, optimizer_seconds, optimizer);
  const std::vector<float> values(1 << 22);  // more than one staging half
  const DeviceFloats large(static_cast<std::int64_t>(values.size()));
  (void)times_of([] {});
  const auto [copies, copy_seconds] =
      taken([&] { accelerator()->to_device(large.data(), values.data(), values.size() * sizeof(float)); });
  expect_only(OpGroup::kCopies, copy_seconds, copies);
  EXPECT_NEAR(copy_seconds, 16.8e6 / 40e9, 0.2e-3);  // plausible: 40 GB/s
}

TEST_F(OpTimes, AnOpWithinAnOpIsTheOuterOnes) {
  const DeviceFloats a(64 * 96), b(64 * 96), c(64 * 64);
  (void)times_of([] {});
  const double before = emulation::busy_seconds();
  const eaglet::OpTimes times = times_of([&] {
    const cuda::TimedOp outer(OpGroup::kHeadLoss);
    gemm(Transpose::kNo, Transpose::kYes, 64, 64, 96, 1, a.data(), 96, b.data(), 96, 0, c.data(), 64);
    zero_rows(64, 64, c.data());
  });
  expect_only(OpGroup::kHeadLoss, emulation::busy_seconds() - before, times);
}

// What is sent while ops run, they do not wait for; what is sent when they are done they wait for as long as
// the copy takes.
TEST_F(OpTimes, StatesThatAreSentAheadAreNotWaitedFor) {
  auto feed = accelerator()->open_feed(DeviceFeed::kHalfBytes);
  ASSERT_TRUE(feed.ok()) << feed.status().message();
  const DeviceFloats x(64 * 96);
  for (const bool ahead : {false, true}) {
    (void)times_of([] {});
    const double before = emulation::busy_seconds("copy in");
    const eaglet::OpTimes times = times_of([&] {
      for (int i = 0; i < 150; ++i) zero_rows(64, 96, x.data());  // longer than the copy
      if (!ahead) {
        EXPECT_TRUE(accelerator()->wait().ok());
      }
      (*feed)->open_slot(0);
      (*feed)->half();
      (*feed)->send_half(0, 0, DeviceFeed::kHalfBytes);
      (*feed)->close_slot(0);
      (*feed)->use(0);
      (*feed)->done(0);
    });
    const double copied = emulation::busy_seconds("copy in") - before;
    EXPECT_GT(copied, 200e-6);
    EXPECT_NEAR(times.of(OpGroup::kStates), copied, 1e-3 * copied);
    EXPECT_NEAR(times.of(OpGroup::kStatesWait), ahead ? 0 : copied, 1e-3 * copied);
    EXPECT_GT(times.in_line(), copied);
  }
}

TEST_F(OpTimes, NothingIsMeasuredUnlessAsked) {
  const DeviceFloats x(64 * 96);
  (void)times_of([] {});
  {
    const UntimedOps untimed(accelerator());
    EXPECT_EQ(times_of([&] { zero_rows(64, 96, x.data()); }).in_line(), 0);
  }
  EXPECT_GT(times_of([&] { zero_rows(64, 96, x.data()); }).in_line(), 0);
}

// What the device has not come to stays for the next time, and nobody waits for it.
TEST_F(OpTimes, UndoneOpsStayForTheNextTime) {
  const DeviceFloats x(64 * 96);
  (void)times_of([] {});
  const double before = emulation::busy_seconds("memset");
  double sum = 0;
  int undone = 0;
  for (int i = 0; i < 50; ++i) {
    zero_rows(64, 96, x.data());
    const double now = accelerator()->take_op_times().in_line();
    undone += now == 0 ? 1 : 0;  // the device works when it wants
    sum += now;
  }
  sum += times_of([] {}).in_line();
  const double taken = emulation::busy_seconds("memset") - before;
  EXPECT_GT(undone, 5);
  EXPECT_NEAR(sum, taken, 1e-4 * taken);
}

}  // namespace
}  // namespace eaglet
