#include "train/host_reducer.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace eaglet {
namespace {

// One rank that notes what it was asked to sum and doubles it, as a second equal rank would.
class Doubling : public Comm {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  int ranks_here() const override { return 2; }
  Status sum(std::int64_t n, float* values) override {
    if (fail_at >= 0 && static_cast<std::int64_t>(sizes.size()) == fail_at)
      return Status(StatusCode::kUnavailable, "rank 1 is gone");
    sizes.push_back(n);
    starts.push_back(values);
    for (std::int64_t i = 0; i < n; ++i) values[i] *= 2;
    return {};
  }
  Status sum(std::int64_t, double*) override { return {}; }
  Status broadcast(std::int64_t, void*, int) override { return {}; }
  Status send(std::int64_t, const void*, int) override { return {}; }
  Status receive(std::int64_t, void*, int) override { return {}; }
  void leave_together() override {}
  void leave(const Status&) override {}
  std::vector<std::int64_t> sizes;
  std::vector<float*> starts;
  std::int64_t fail_at = -1;
};

TEST(HostReducer, SumsEveryElementOnceFromTheEnd) {
  for (const std::int64_t n : {1, 9, 10, 11, 35}) {
    Doubling comm;
    std::vector<float> gradients(static_cast<std::size_t>(n), 1.0f);
    HostReducer reducer(comm, gradients.data(), n, 10);
    for (int update = 0; update < 3; ++update) {
      std::fill(gradients.begin(), gradients.end(), 1.0f);
      reducer.begin();
      reducer.ready(n * 2 / 3);
      reducer.ready(n / 3);
      reducer.ready(0);
      ASSERT_TRUE(reducer.finish().ok());
      EXPECT_EQ(gradients, std::vector<float>(gradients.size(), 2.0f));
    }
    EXPECT_EQ(comm.starts.size(), static_cast<std::size_t>(3 * ((n + 9) / 10)));
    EXPECT_EQ(comm.starts[0], gradients.data() + std::max<std::int64_t>(0, n - 10));
  }
}

TEST(HostReducer, DoesNotTouchWhatBackwardStillWrites) {
  Doubling comm;
  std::vector<float> gradients(40, 1.0f);
  HostReducer reducer(comm, gradients.data(), 40, 10);
  reducer.begin();
  reducer.ready(25);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (std::size_t i = 0; i < 30; ++i) ASSERT_EQ(gradients[i], 1.0f) << i;
  gradients[24] = 5;  // backward's last word
  reducer.ready(0);
  ASSERT_TRUE(reducer.finish().ok());
  EXPECT_EQ(gradients[24], 10);
  EXPECT_EQ(gradients[39], 2);
}

TEST(HostReducer, AFailureEndsTheWait) {
  Doubling comm;
  comm.fail_at = 1;
  std::vector<float> gradients(40, 1.0f);
  HostReducer reducer(comm, gradients.data(), 40, 10);
  reducer.begin();
  reducer.ready(0);
  EXPECT_EQ(reducer.finish().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace eaglet
