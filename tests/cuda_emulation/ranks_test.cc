// What ranks do together with arrays of their devices: every rank is a process with an emulated device of its
// own, and they meet in the stand-in of NCCL. EAGLET_EMULATION_SEED draws when streams run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "comm/device_ranks.h"
#include "comm/watch_line.h"
#include "cuda_runtime.h"
#include "emulation.h"
#include "ops/device_test.h"

namespace eaglet {
namespace {

using test::DeviceArray;
using test::DeviceFloats;
using testing::HasSubstr;

constexpr int kKilled = 9;

// The host's side, as MPI would be: sockets between rank 0 and the others, and the watch line.
class SocketComm : public Comm {
 public:
  SocketComm(int rank, int ranks, std::vector<int> sockets)
      : rank_(rank), ranks_(ranks), sockets_(std::move(sockets)) {
    std::string address;
    if (rank == 0) line_ = std::move(*WatchLine::listen(ranks));
    if (rank == 0) address = line_->address();
    EXPECT_TRUE(share_text(*this, 0, &address).ok());
    if (rank == 0)
      EXPECT_TRUE(line_->accept_all(20).ok());
    else
      line_ = std::move(*WatchLine::connect("127.0.0.1", address, rank, ranks));
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  int ranks_here() const override { return ranks_; }
  Status sum(std::int64_t n, float* values) override { return sum_all(n, values); }
  Status sum(std::int64_t n, double* values) override { return sum_all(n, values); }
  Status broadcast(std::int64_t bytes, void* data, int root) override {
    if (rank_ != 0) {
      if (rank_ == root) EAGLET_RETURN_IF_ERROR(send(bytes, data, 0));
      return rank_ == root ? Status() : receive(bytes, data, 0);
    }
    if (root != 0) EAGLET_RETURN_IF_ERROR(receive(bytes, data, root));
    for (int r = 1; r < ranks_; ++r)
      if (r != root) EAGLET_RETURN_IF_ERROR(send(bytes, data, r));
    return {};
  }
  Status send(std::int64_t bytes, const void* data, int to) override {
    const auto n = static_cast<std::size_t>(bytes);
    return ::send(sockets_[static_cast<std::size_t>(to)], data, n, MSG_NOSIGNAL) == bytes ? Status() : lost();
  }
  Status receive(std::int64_t bytes, void* data, int from) override {
    const auto n = static_cast<std::size_t>(bytes);
    return ::recv(sockets_[static_cast<std::size_t>(from)], data, n, MSG_WAITALL) == bytes ? Status()
                                                                                           : lost();
  }
  Status check() override { return line_ && line_->broken() ? line_->failure() : Status(); }
  void leave_together() override {}
  void leave(const Status& status) override { line_->leave(status); }

 private:
  template <class T>
  Status sum_all(std::int64_t n, T* values) {
    const auto bytes = n * static_cast<std::int64_t>(sizeof(T));
    if (rank_ != 0) {
      EAGLET_RETURN_IF_ERROR(send(bytes, values, 0));
      return receive(bytes, values, 0);
    }
    std::vector<T> theirs(static_cast<std::size_t>(n));
    for (int r = 1; r < ranks_; ++r) {
      EAGLET_RETURN_IF_ERROR(receive(bytes, theirs.data(), r));
      for (std::size_t i = 0; i < theirs.size(); ++i) values[i] += theirs[i];
    }
    for (int r = 1; r < ranks_; ++r) EAGLET_RETURN_IF_ERROR(send(bytes, values, r));
    return {};
  }
  Status lost() { return Status(StatusCode::kUnavailable, "a socket is closed"); }

  const int rank_, ranks_;
  std::vector<int> sockets_;  // by rank
  std::unique_ptr<WatchLine> line_;
};

struct Expected {
  bool whole = true;  // nothing may fail on the device, and nothing be left behind
  int lost_rank = -1;
};

void run_rank(std::unique_ptr<SocketComm> comm, const Expected& expected,
              const std::function<void(SocketComm&)>& body) {
  emulation::set_seed(
      (std::getenv("EAGLET_EMULATION_SEED") ? std::stoull(std::getenv("EAGLET_EMULATION_SEED")) : 1) +
      100 * static_cast<std::uint64_t>(comm->rank()));
  Result<std::unique_ptr<Accelerator>> device = open_cuda(0);
  ASSERT_TRUE(device.ok()) << device.status().message();
  test::set_accelerator(std::move(*device));
  body(*comm);
  comm->leave({});
  if (!expected.whole) return;
  EXPECT_TRUE(test::accelerator()->wait().ok());
  test::set_accelerator(nullptr);
  for (const std::string& fault : emulation::faults()) ADD_FAILURE() << fault;
  EXPECT_EQ(emulation::live_allocations(), 0);
  EXPECT_EQ(emulation::live_communicators(), 0);
}

// Each rank in a process of its own.
void as_ranks(int ranks, const Expected& expected, const std::function<void(SocketComm&)>& body) {
  std::vector<int> of_zero(static_cast<std::size_t>(ranks), -1), of_others(of_zero);
  for (std::size_t r = 1; r < of_zero.size(); ++r) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    of_zero[r] = pair[0];
    of_others[r] = pair[1];
  }
  std::vector<pid_t> processes;
  for (int r = 0; r < ranks; ++r) {
    const pid_t process = ::fork();
    ASSERT_GE(process, 0);
    if (process == 0) {
      ::alarm(60);
      std::vector<int> sockets = r == 0 ? of_zero : std::vector<int>{of_others[static_cast<std::size_t>(r)]};
      run_rank(std::make_unique<SocketComm>(r, ranks, std::move(sockets)), expected, body);
      std::fflush(nullptr);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    processes.push_back(process);
  }
  for (const int fd : of_zero) ::close(fd);
  for (const int fd : of_others) ::close(fd);
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    ASSERT_EQ(::waitpid(processes[static_cast<std::size_t>(r)], &status, 0),
              processes[static_cast<std::size_t>(r)]);
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << r << " ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), r == expected.lost_rank ? kKilled : 0) << "rank " << r;
  }
}

std::unique_ptr<DeviceRanks> open(SocketComm& comm, double timeout_seconds = 30) {
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
void sum_and_share(SocketComm& comm) {
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
  as_ranks(2, {}, [](SocketComm& comm) {
    auto together = open(comm);
    ASSERT_NE(together, nullptr);
    // The host's side is borrowed: with_device_ranks() wants to own it.
    struct Lent : Comm {
      explicit Lent(SocketComm* of_test) : comm(of_test) {}
      int rank() const override { return comm->rank(); }
      int ranks() const override { return comm->ranks(); }
      int ranks_here() const override { return comm->ranks_here(); }
      Status sum(std::int64_t n, float* values) override { return comm->sum(n, values); }
      Status sum(std::int64_t n, double* values) override { return comm->sum(n, values); }
      Status broadcast(std::int64_t bytes, void* data, int root) override {
        return comm->broadcast(bytes, data, root);
      }
      Status send(std::int64_t bytes, const void* data, int to) override {
        return comm->send(bytes, data, to);
      }
      Status receive(std::int64_t bytes, void* data, int from) override {
        return comm->receive(bytes, data, from);
      }
      void leave_together() override {}
      void leave(const Status&) override {}
      SocketComm* comm;
    };
    const auto both = with_device_ranks(std::make_unique<Lent>(&comm), std::move(together));
    const DeviceFloats values(numbers(9, comm.rank()));
    std::vector<float> on_host = numbers(9, comm.rank());
    ASSERT_TRUE(both->sum(9, values.data()).ok());
    ASSERT_TRUE(both->sum(9, on_host.data()).ok());
    EXPECT_EQ(values.read(), sums(9, 2));
    EXPECT_EQ(on_host, sums(9, 2));
    ASSERT_TRUE(both->broadcast(36, values.data(), 1).ok());
    EXPECT_EQ(values.read(), sums(9, 2));
    EXPECT_EQ(both->send(4, values.data(), 1 - comm.rank()).code(), StatusCode::kInternal);
    both->leave_together();
  });
}

// A rank that dies while the others wait for it in the device.
TEST(Ranks, ALostRankEndsTheOthersWithItsName) {
  as_ranks(4, {true, 3}, [](SocketComm& comm) {
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
  as_ranks(2, {}, [](SocketComm& comm) {
    double meet = 0;
    EXPECT_TRUE(comm.sum(1, &meet).ok());  // opening is waited for no longer than that either
    auto together = open(comm, 2);
    ASSERT_NE(together, nullptr);
    const DeviceFloats values(numbers(10, comm.rank()));
    if (comm.rank() == 0) {
      Status status = together->sum(10, values.data());
      if (status.ok()) status = together->wait();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_THAT(status.what(), HasSubstr("no answer"));
    }
    EXPECT_TRUE(comm.sum(1, &meet).ok());
  });
}

TEST(Ranks, ARankWithoutTheLibraryIsToldToAll) {
  as_ranks(2, {}, [](SocketComm& comm) {
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
void plant(const std::string& told, const std::function<void(SocketComm&, DeviceRanks&)>& fault) {
  as_ranks(2, {false, -1}, [&](SocketComm& comm) {
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
  plant("not wholly in live device memory", [](SocketComm&, DeviceRanks& together) {
    const DeviceFloats values(numbers(10, 0));
    static_cast<void>(together.sum(11, values.data()));
  });
  plant("not wholly in live device memory", [](SocketComm&, DeviceRanks& together) {
    auto values = std::make_unique<DeviceFloats>(numbers(10, 0));
    float* gone = values->data();
    values.reset();
    static_cast<void>(together.sum(10, gone));
  });
  plant("not aligned", [](SocketComm&, DeviceRanks& together) {
    const DeviceFloats values(numbers(10, 0));
    static_cast<void>(together.sum(5, reinterpret_cast<float*>(reinterpret_cast<char*>(values.data()) + 2)));
  });
  plant("overlap", [](SocketComm&, DeviceRanks& together) {
    const DeviceFloats values(numbers(10, 0));
    static_cast<void>(together.gather_shares(5, values.data() + 3, values.data()));
  });
  plant("different calls", [](SocketComm& comm, DeviceRanks& together) {
    const DeviceFloats values(numbers(10, 0));
    static_cast<void>(together.sum(10 - comm.rank(), values.data()));
    static_cast<void>(together.wait());
  });
}

}  // namespace
}  // namespace eaglet
