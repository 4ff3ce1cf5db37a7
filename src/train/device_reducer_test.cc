#include "train/device_reducer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace eaglet {
namespace {

// Notes what it was asked to sum.
class Noting : public DeviceRanks {
 public:
  Status sum(std::int64_t n, float* values) override {
    if (fails) return Status(StatusCode::kUnavailable, "rank 1 is gone");
    sums.emplace_back(values, n);
    return {};
  }
  Status sum(std::int64_t, double*) override { return {}; }
  Status sum_shares(std::int64_t, const float*, float*) override { return {}; }
  Status gather_shares(std::int64_t, const float*, float*) override { return {}; }
  Status broadcast(std::int64_t, void*, int) override { return {}; }
  void join() override {}
  Status wait() override {
    ++waits;
    return {};
  }
  void abandon() override { abandoned = true; }
  std::vector<std::pair<float*, std::int64_t>> sums;
  int waits = 0;
  bool fails = false, abandoned = false;
};

class Idle : public Accelerator {
 public:
  const std::string& name() const override { return name_; }
  std::uint64_t memory_bytes() const override { return 0; }
  Result<void*> take(std::uint64_t) override { return Status(StatusCode::kNoSpace, "none"); }
  void give_back(void*) override {}
  void to_device(void*, const void*, std::uint64_t) override {}
  void to_host(void*, const void*, std::uint64_t) override {}
  Result<std::unique_ptr<DeviceFeed>> open_feed(std::uint64_t) override {
    return Status(StatusCode::kNoSpace, "none");
  }
  Status wait() override { return {}; }
  Status check() override { return {}; }
  bool idle() override { return true; }
  bool time_ops(bool) override { return false; }
  OpTimes take_op_times() override { return {}; }

 private:
  std::string name_ = "idle";
};

// Buckets of 10 from the end, each as soon as it is final and not before.
TEST(DeviceReducer, ABucketIsAskedForOnceItIsFinal) {
  Noting ranks;
  Idle device;
  std::vector<float> g(35);
  DeviceReducer reducer(ranks, device, g.data(), 35, 10);
  for (int update = 0; update < 2; ++update) {
    ranks.sums.clear();
    reducer.begin();
    reducer.ready(26);
    EXPECT_TRUE(ranks.sums.empty());
    reducer.ready(15);
    EXPECT_EQ(ranks.sums.size(), 2u);
    reducer.ready(15);
    reducer.ready(0);
    const std::vector<std::pair<float*, std::int64_t>> wanted = {
        {g.data() + 25, 10}, {g.data() + 15, 10}, {g.data() + 5, 10}, {g.data(), 5}};
    EXPECT_EQ(ranks.sums, wanted);
    EXPECT_EQ(ranks.waits, update);
    ASSERT_TRUE(reducer.finish().ok());
    EXPECT_EQ(ranks.waits, update + 1);
  }
}

TEST(DeviceReducer, AFailureIsToldAndEndsTheUpdate) {
  Noting ranks;
  Idle device;
  std::vector<float> g(35);
  DeviceReducer reducer(ranks, device, g.data(), 35, 10);
  ranks.fails = true;
  reducer.begin();
  reducer.ready(0);
  EXPECT_EQ(reducer.finish().code(), StatusCode::kUnavailable);
  EXPECT_EQ(ranks.waits, 0);
}

// Nobody may add into gradients that are given back.
TEST(DeviceReducer, AnUpdateThatIsNotFinishedIsBrokenOff) {
  Noting ranks;
  Idle device;
  std::vector<float> g(35);
  {
    DeviceReducer reducer(ranks, device, g.data(), 35, 10);
    reducer.begin();
    reducer.ready(0);
    ASSERT_TRUE(reducer.finish().ok());
  }
  EXPECT_FALSE(ranks.abandoned);
  {
    DeviceReducer reducer(ranks, device, g.data(), 35, 10);
    reducer.begin();
    reducer.ready(20);
  }
  EXPECT_TRUE(ranks.abandoned);
}

}  // namespace
}  // namespace eaglet
