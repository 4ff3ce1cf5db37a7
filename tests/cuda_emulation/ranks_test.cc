// What ranks do together with arrays of their devices: every rank is a process with an emulated device of its
// own, and they meet in the stand-in of NCCL. EAGLET_EMULATION_SEED draws when streams run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/device_ranks.h"
#include "cuda_runtime.h"
#include "emulation.h"
#include "ops/device_test.h"
#include "rank_processes.h"

namespace eaglet {
namespace {

using test::DeviceArray;
using test::DeviceFloats;
using test::kKilled;
using testing::HasSubstr;

void as_ranks(int ranks, const test::Expected& expected, const std::function<void(Comm&)>& body) {
  test::as_ranks(ranks, expected, [&](std::unique_ptr<Comm>& comm) { body(*comm); });
}

std::unique_ptr<DeviceRanks> open(Comm& comm, double timeout_seconds = 30) {
  Result<std::unique_ptr<DeviceRanks>> ranks = open_device_ranks(comm, {timeout_seconds});
  EXPECT_TRUE(ranks.ok()) << ranks.status().message();
  return ranks.ok() ? std::move(*ranks) : nullptr;
}

std::vector<float> numbers(std::int64_t n, int rank) {
  std::vector<float> all(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 50);
  return all;
}
std::vector<float> sums(std::int64_t n, int ranks) {
  std::vector<float> all(static_cast<std::size_t>(n), 0.0f);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> of_rank = numbers(n, r);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += of_rank[i];
  }
  return all;
}
std::vector<float> part(const std::vector<float>& all, std::int64_t n_each, int rank) {
  return std::vector<float>(all.begin() + rank * n_each, all.begin() + (rank + 1) * n_each);
}

// Sums of arrays that the device has only been asked to fill, read by what the device does afterwards.
void sum_and_share(Comm& comm) {
  const auto together = open(comm);
  ASSERT_NE(together, nullptr);
  const int rank = comm.rank(), ranks = comm.ranks();
  for (const std::int64_t n_each : {1, 5, 1000}) {
    const std::int64_t n = n_each * ranks;
    const DeviceFloats values(numbers(n, rank)), scattered(numbers(n, rank)), mine(n_each), all(n);
    const std::vector<float> of_all = sums(n, ranks);
    const DeviceArray<double> doubles(std::vector<double>(3, 0.5 + rank));
    ASSERT_TRUE(together->sum(n, values.data()).ok());
    ASSERT_TRUE(together->sum(3, doubles.data()).ok());
    ASSERT_TRUE(together->sum_shares(n_each, scattered.data(), mine.data()).ok());
    ASSERT_TRUE(together->gather_shares(n_each, mine.data(), all.data()).ok());
    together->join();
    EXPECT_EQ(values.read(), of_all);
    EXPECT_EQ(doubles.read(), std::vector<double>(3, 0.5 * ranks + ranks * (ranks - 1) / 2.0));
    EXPECT_EQ(mine.read(), part(of_all, n_each, rank));
    EXPECT_EQ(all.read(), of_all);
    // In place: the rank's share lies among the others.
    const DeviceFloats place(numbers(n, rank));
    ASSERT_TRUE(together->sum_shares(n_each, place.data(), place.data() + rank * n_each).ok());
    ASSERT_TRUE(together->gather_shares(n_each, place.data() + rank * n_each, place.data()).ok());
    const DeviceFloats sent(numbers(n, rank));
    ASSERT_TRUE(together->broadcast(n * 4, sent.data(), ranks - 1).ok());
    const Status done = together->wait();
    EXPECT_TRUE(done.ok()) << done.message();
    EXPECT_EQ(place.read(), of_all);
    EXPECT_EQ(sent.read(), numbers(n, ranks - 1));
  }
}
TEST(Ranks, TwoSumAndShare) {
  as_ranks(2, {}, sum_and_share);
}
TEST(Ranks, FourSumAndShare) {
  as_ranks(4, {}, sum_and_share);
}
TEST(Ranks, OneAlone) {
  as_ranks(1, {}, sum_and_share);
}

TEST(Ranks, ArraysGoWhereTheyLie) {
  test::as_ranks(2, {}, [](std::unique_ptr<Comm>& comm) {
    auto together = open(*comm);
    ASSERT_NE(together, nullptr);
    comm = with_device_ranks(std::move(comm), std::move(together));
    const DeviceFloats values(numbers(9, comm->rank()));
    std::vector<float> on_host = numbers(9, comm->rank());
    ASSERT_TRUE(comm->sum(9, values.data()).ok());
    ASSERT_TRUE(comm->sum(9, on_host.data()).ok());
    EXPECT_EQ(values.read(), sums(9, 2));
    EXPECT_EQ(on_host, sums(9, 2));
    ASSERT_TRUE(comm->broadcast(36, values.data(), 1).ok());
    EXPECT_EQ(values.read(), sums(9, 2));
    EXPECT_EQ(comm->send(4, values.data(), 1 - comm->rank()).code(), StatusCode::kInternal);
    comm->leave_together();
  });
}

// A rank that dies while the others wait for it in the device.
TEST(Ranks, ALostRankEndsTheOthersWithItsName) {
  as_ranks(4, {true, 3, 0}, [](Comm& comm) {
    auto together = open(comm);
    ASSERT_NE(together, nullptr);
    const DeviceFloats values(numbers(100, comm.rank()));
    ASSERT_TRUE(together->sum(100, values.data()).ok());
    ASSERT_TRUE(together->wait().ok());
    double meet = 0;
    ASSERT_TRUE(comm.sum(1, &meet).ok());
    if (comm.rank() == 3) ::_exit(kKilled);
    Status status = together->sum(100, values.data());
    if (status.ok()) status = together->wait();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.what(), HasSubstr("rank 3 of 4"));
    EXPECT_EQ(together->sum(100, values.data()).code(), StatusCode::kUnavailable);  // and it stays so
  });
}

TEST(Ranks, ARankThatDoesNotComeIsWaitedForAsLongAsIsSaid) {
  as_ranks(2, {}, [](Comm& comm) {
    double meet = 0;
    EXPECT_TRUE(comm.sum(1, &meet).ok());  // opening is waited for no longer than that either
    auto together = open(comm, 2);
    ASSERT_NE(together, nullptr);
    const DeviceFloats values(numbers(10, comm.rank()));
    if (comm.rank() == 1) ::sleep(5);
    if (comm.rank() == 1) return;
    Status status = together->sum(10, values.data());
    if (status.ok()) status = together->wait();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.what(), HasSubstr("rank 1 of 2"));
    EXPECT_THAT(status.what(), HasSubstr("has not come"));
  });
}

// Rank 0 writes a checkpoint for longer than the others would wait in their devices.
TEST(Ranks, ABusyRankIsWaitedFor) {
  as_ranks(2, {}, [](Comm& comm) {
    double meet = 0;
    EXPECT_TRUE(comm.sum(1, &meet).ok());
    auto together = open(comm, 1);
    ASSERT_NE(together, nullptr);
    const DeviceFloats values(numbers(10, comm.rank()));
    if (comm.rank() == 0) {
      const Busy busy(comm);
      ::sleep(3);
    }
    ASSERT_TRUE(together->sum(10, values.data()).ok());
    const Status status = together->wait();
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST(Ranks, ARankWithoutTheLibraryIsToldToAll) {
  as_ranks(2, {}, [](Comm& comm) {
    if (comm.rank() == 1) ::setenv("EAGLET_EMULATION_WITHOUT_NCCL", "1", 1);
    const Status status = open_device_ranks(comm, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.what(), HasSubstr(comm.rank() == 1 ? "not on this machine" : "1 of the ranks"));
  });
}

// The stand-in tells what the library would answer with garbage or a hang.
std::string faults() {
  std::string all;
  for (const std::string& fault : emulation::faults()) all += fault + "\n";
  return all;
}
void plant(const std::string& told, const std::function<void(Comm&, DeviceRanks&)>& fault) {
  as_ranks(2, {false, -1, 0}, [&](Comm& comm) {
    const auto together = open(comm);
    ASSERT_NE(together, nullptr);
    fault(comm, *together);
    static_cast<void>(together->wait());
    EXPECT_THAT(faults(), HasSubstr(told));
    double meet = 0;
    EXPECT_TRUE(comm.sum(1, &meet).ok());
  });
}
TEST(Ranks, FaultsAreTold) {
  plant("not wholly in live device memory", [](Comm&, DeviceRanks& together) {
    const DeviceFloats values(numbers(10, 0));
    static_cast<void>(together.sum(11, values.data()));
  });
  plant("not wholly in live device memory", [](Comm&, DeviceRanks& together) {
    auto values = std::make_unique<DeviceFloats>(numbers(10, 0));
    float* gone = values->data();
    values.reset();
    static_cast<void>(together.sum(10, gone));
  });
  plant("not aligned", [](Comm&, DeviceRanks& together) {
    const DeviceFloats values(numbers(10, 0));
    static_cast<void>(together.sum(5, reinterpret_cast<float*>(reinterpret_cast<char*>(values.data()) + 2)));
  });
  plant("overlap", [](Comm&, DeviceRanks& together) {
    const DeviceFloats values(numbers(10, 0));
    static_cast<void>(together.gather_shares(5, values.data() + 3, values.data()));
  });
  plant("different calls", [](Comm& comm, DeviceRanks& together) {
    const DeviceFloats values(numbers(10, 0));
    static_cast<void>(together.sum(10 - comm.rank(), values.data()));
    static_cast<void>(together.wait());
  });
}

}  // namespace
}  // namespace eaglet
