#pragma once

// Ranks as processes, each with an emulated device of its own; on the host they meet over sockets.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/socket_comm.h"
#include "comm/tcp.h"
#include "emulation.h"
#include "ops/device_test.h"

namespace eaglet::test {

inline constexpr int kKilled = 9;

struct Expected {
  bool whole = true;  // nothing may fail on the device, and nothing be left behind
  int lost_rank = -1;
  double timeout_seconds = 0;
};

/// What a rank does; it may put a Comm of host and device in the place of its own.
using RankBody = std::function<void(std::unique_ptr<Comm>& comm)>;

inline void run_rank(int rank, int ranks, int listening, const Expected& expected, const RankBody& body) {
  RankEnvironment place;
  place.way = RankEnvironment::Way::kSockets;
  place.rank = rank;
  place.ranks = ranks;
  place.host = "127.0.0.1";
  place.port = tcp::port_of(listening);
  place.listening = rank == 0 ? listening : -1;
  Result<std::unique_ptr<Comm>> comm = start_sockets(place, expected.timeout_seconds);
  ASSERT_TRUE(comm.ok()) << comm.status().message();
  const char* seed = std::getenv("EAGLET_EMULATION_SEED");
  emulation::set_seed((seed != nullptr ? std::stoull(seed) : 1) + 100 * static_cast<std::uint64_t>(rank));
  Result<std::unique_ptr<Accelerator>> device = open_cuda(0);
  ASSERT_TRUE(device.ok()) << device.status().message();
  use_cuda_ops();
  set_accelerator(std::move(*device));
  body(*comm);
  (*comm)->leave({});
  if (!expected.whole) return;
  EXPECT_TRUE(accelerator()->wait().ok());
  set_accelerator(nullptr);
  for (const std::string& fault : emulation::faults()) ADD_FAILURE() << fault;
  EXPECT_EQ(emulation::live_allocations(), 0);
  EXPECT_EQ(emulation::live_communicators(), 0);
}

/// Each rank in a process of its own.
inline void as_ranks(int ranks, const Expected& expected, const RankBody& body) {
  const Result<int> listening = tcp::listen_on(0, true, ranks);
  ASSERT_TRUE(listening.ok()) << listening.status().message();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    ASSERT_GE(process, 0);
    if (process == 0) {
      ::alarm(120);
      run_rank(rank, ranks, *listening, expected, body);
      std::fflush(nullptr);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    processes.push_back(process);
  }
  ::close(*listening);
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ASSERT_GT(::waitpid(processes[static_cast<std::size_t>(rank)], &status, 0), 0);
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank << " ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), rank == expected.lost_rank ? kKilled : 0) << "rank " << rank;
  }
}

}  // namespace eaglet::test
