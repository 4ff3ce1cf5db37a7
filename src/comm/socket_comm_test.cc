// Ranks over sockets: this process is rank 0, the others are its children.

#include "comm/socket_comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/interrupt.h"
#include "comm/socket_meeting.h"
#include "comm/tcp.h"

namespace eaglet {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

RankEnvironment place(int rank, int ranks, int listening) {
  RankEnvironment e;
  e.way = RankEnvironment::Way::kSockets;
  e.rank = rank;
  e.ranks = ranks;
  e.host = "127.0.0.1";
  e.port = tcp::port_of(listening);
  e.listening = rank == 0 ? ::dup(listening) : -1;
  return e;
}

using Body = std::function<void(Comm&)>;

void run_rank(int rank, int ranks, int listening, double timeout_seconds, const Body& body) {
  const auto comm = start_sockets(place(rank, ranks, listening), timeout_seconds);
  ASSERT_TRUE(comm.ok()) << comm.status().message();
  body(**comm);
  (*comm)->leave({});
}

// `lost` is a rank whose end is not looked at.
void as_ranks(int ranks, const Body& body, double timeout_seconds = 0, int lost = -1) {
  const int listening = *tcp::listen_on(0, true, ranks);
  std::vector<pid_t> children;
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      run_rank(rank, ranks, listening, timeout_seconds, body);
      std::fflush(nullptr);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  run_rank(0, ranks, listening, timeout_seconds, body);
  ::close(listening);
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = children[static_cast<std::size_t>(rank - 1)];
    int status = 0;
    if (rank == lost) ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(rank == lost || status == 0) << "rank " << rank;
  }
}

template <class T>
T number(std::int64_t i, int rank) {
  return static_cast<T>((i * 7 + rank * 3) % 50) / 4;
}

template <class T>
void expect_sums(Comm& comm, std::int64_t n) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(number<T>(i, comm.rank()));
  const Status status = comm.sum(n, values.data());
  ASSERT_TRUE(status.ok()) << status.message();
  for (std::int64_t i = 0; i < n; ++i) {
    T sum = 0;
    for (int rank = 0; rank < comm.ranks(); ++rank) sum += number<T>(i, rank);
    ASSERT_EQ(values[static_cast<std::size_t>(i)], sum) << i << " of " << n << " on rank " << comm.rank();
  }
}

TEST(SocketComm, SumsAreThoseOfAllRanks) {
  for (const int ranks : {2, 3, 4})
    as_ranks(ranks, [](Comm& comm) {
      EXPECT_EQ(comm.ranks_here(), comm.ranks());
      EXPECT_EQ(comm.rank_here(), comm.rank());
      for (const std::int64_t n : {0, 1, 2, 3, 5, 1000, 300001}) {
        expect_sums<float>(comm, n);
        expect_sums<double>(comm, n);
      }
    });
}

// In which order numbers are added must not depend on the rank.
TEST(SocketComm, SumsAreTheSameBitsEverywhere) {
  as_ranks(4, [](Comm& comm) {
    std::vector<float> values;
    for (int i = 0; i < 5000; ++i) values.push_back(1.0f / static_cast<float>(3 + i * 4 + comm.rank()));
    ASSERT_TRUE(comm.sum(5000, values.data()).ok());
    const auto all = gather_texts(comm, std::string(reinterpret_cast<const char*>(values.data()), 20000));
    ASSERT_TRUE(all.ok());
    for (const std::string& theirs : *all) EXPECT_EQ(theirs, (*all)[0]);
  });
}

TEST(SocketComm, BytesGoFromAnyRankToAllAndFromOneToOne) {
  for (const int ranks : {2, 3})
    as_ranks(ranks, [](Comm& comm) {
      for (int root = 0; root < comm.ranks(); ++root)
        for (const std::size_t n : {1u, 1000u, 700000u}) {
          std::vector<char> bytes(n, static_cast<char>(comm.rank())), wanted(n);
          for (std::size_t i = 0; i < n; ++i) wanted[i] = static_cast<char>(i * 31 + 5);
          if (comm.rank() == root) bytes = wanted;
          ASSERT_TRUE(comm.broadcast(static_cast<std::int64_t>(n), bytes.data(), root).ok());
          ASSERT_TRUE(bytes == wanted) << n << " from " << root;
        }
      std::vector<int> numbers(300000, comm.rank());
      constexpr std::int64_t kBytes = 300000 * sizeof(int);
      EXPECT_TRUE(comm.rank() == 0 || comm.send(kBytes, numbers.data(), 0).ok());
      for (int from = 1; comm.rank() == 0 && from < comm.ranks(); ++from) {
        EXPECT_TRUE(comm.receive(kBytes, numbers.data(), from).ok());
        EXPECT_EQ(numbers, std::vector<int>(300000, from));
      }
    });
}

// The others must not have left before the rank is lost.
Status sum_once_met(Comm& comm, const std::function<void()>& of_rank_2) {
  float value = 1;
  EXPECT_TRUE(comm.sum(1, &value).ok());
  if (comm.rank() == 2) of_rank_2();
  const Status status = comm.sum(1, &value);
  return status.ok() ? comm.sum(1, &value) : status;
}

TEST(SocketComm, ALostRankEndsTheOthersWithItsName) {
  const double begin = monotonic_seconds();
  as_ranks(
      4,
      [](Comm& comm) {
        const Status status = sum_once_met(comm, [] { ::_exit(9); });
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(status.what(), HasSubstr("rank 2 of 4"));
        EXPECT_THAT(status.what(), HasSubstr("is gone"));
      },
      0, 2);
  EXPECT_LT(monotonic_seconds() - begin, 30);
}

TEST(SocketComm, ARankThatStandsStillIsNamedWhenTheTimeIsOver) {
  as_ranks(
      4,
      [](Comm& comm) {
        const Status status = sum_once_met(comm, [] { ::raise(SIGSTOP); });
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(status.what(), HasSubstr("rank 2 of 4"));
        EXPECT_THAT(status.what(), HasSubstr("does not answer any more"));
      },
      1, 2);
}

TEST(SocketComm, ARankThatLivesAndDoesNotComeIsNamedToo) {
  as_ranks(
      4,
      [](Comm& comm) {
        const Status status = sum_once_met(comm, [] { ::sleep(50); });
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(status.what(), HasSubstr("rank 2 of 4"));
        EXPECT_THAT(status.what(), HasSubstr("though it lives"));
      },
      1, 2);
}

TEST(SocketComm, RankZeroThatStandsStillIsNamedByTheOthers) {
  const int listening = *tcp::listen_on(0, true, 2);
  const pid_t zero = ::fork();
  if (zero == 0) {
    run_rank(0, 2, listening, 1, [](Comm&) { ::raise(SIGSTOP); });
    ::_exit(0);
  }
  run_rank(1, 2, listening, 1, [](Comm& comm) {
    float value = 1;
    const Status status = comm.sum(1, &value);
    EXPECT_THAT(status.what(), HasSubstr("rank 0 of 2 does not answer any more"));
  });
  ::kill(zero, SIGKILL);
  ::waitpid(zero, nullptr, 0);
  ::close(listening);
}

// Rank 0 writes a checkpoint, which takes longer than the others would wait.
TEST(SocketComm, ABusyRankIsWaitedFor) {
  as_ranks(
      3,
      [](Comm& comm) {
        float value = 1;
        ASSERT_TRUE(comm.sum(1, &value).ok());
        if (comm.rank() == 0) {
          const Busy busy(comm);
          ::sleep(3);
        }
        const Status status = comm.sum(1, &value);
        EXPECT_TRUE(status.ok()) << status.message();
      },
      1);
}

// A meeting in this process: `guests` come, each with its environment.
struct Met {
  Status host;
  std::vector<Status> guests;
};
Met meet(int ranks, std::vector<RankEnvironment> guests, double timeout_seconds) {
  const int listening = *tcp::listen_on(0, true, 8);
  Met met;
  met.guests.resize(guests.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < guests.size(); ++i) {
    guests[i].host = "127.0.0.1";
    guests[i].port = tcp::port_of(listening);
    threads.emplace_back(
        [&, i] { met.guests[i] = meet_by_sockets(guests[i], 1, "", timeout_seconds).status(); });
  }
  met.host = meet_by_sockets(place(0, ranks, listening), 1, "9 secret", timeout_seconds).status();
  ::close(listening);
  for (std::thread& thread : threads) thread.join();
  return met;
}
RankEnvironment guest(int rank, int ranks, const std::string& run = "") {
  RankEnvironment e;
  e.rank = rank;
  e.ranks = ranks;
  e.run = run;
  return e;
}

TEST(SocketMeeting, AMissingRankIsNamedToAll) {
  const Met met = meet(4, {guest(1, 4), guest(3, 4)}, 0.5);
  EXPECT_EQ(met.host.code(), StatusCode::kUnavailable);
  EXPECT_THAT(met.host.what(), HasSubstr("3 of 4"));
  EXPECT_THAT(met.host.what(), HasSubstr("missing: rank 2"));
  for (const Status& status : met.guests) EXPECT_THAT(status.what(), HasSubstr("missing: rank 2"));
}

TEST(SocketMeeting, OneRankMustNotBeTwo) {
  const Met met = meet(3, {guest(1, 3), guest(1, 3)}, 5);
  EXPECT_EQ(met.host.code(), StatusCode::kConfig);
  EXPECT_THAT(met.host.what(), HasSubstr("two processes are rank 1"));
  for (const Status& status : met.guests) EXPECT_THAT(status.what(), HasSubstr("two processes are rank 1"));
}

TEST(SocketMeeting, AllMustBeOfAsManyRanks) {
  const Met met = meet(3, {guest(1, 2)}, 5);
  EXPECT_EQ(met.host.code(), StatusCode::kConfig);
  EXPECT_THAT(met.host.what(), HasSubstr("one of 2 ranks"));
  EXPECT_THAT(met.guests[0].what(), HasSubstr("one of 2 ranks"));
}

// A rank of another run is turned away, and this run goes on; so does a stranger.
TEST(SocketMeeting, ARankOfAnotherRunIsTurnedAway) {
  const Met met = meet(2, {guest(1, 2, "other")}, 1);
  EXPECT_THAT(met.host.what(), HasSubstr("missing: rank 1"));
  EXPECT_THAT(met.guests[0].what(), HasSubstr("another run"));
}

TEST(Tcp, AConnectionThatWaitsEndsWithASignal) {
  const int listening = *tcp::listen_on(0, true, 0);  // one may wait to be taken; calls after it hear nothing
  const std::string port = std::to_string(tcp::port_of(listening));
  const int first = *tcp::connect_to("127.0.0.1", port);
  std::thread stops([] {
    ::usleep(300000);
    set_interrupt_for_test(SIGTERM);
  });
  const double began = monotonic_seconds();
  const Result<int> second = tcp::connect_to("127.0.0.1", port);
  EXPECT_FALSE(second.ok());
  EXPECT_GE(monotonic_seconds() - began, 0.2) << "it was refused, not left waiting";
  EXPECT_LT(monotonic_seconds() - began, 20);
  stops.join();
  set_interrupt_for_test(0);
  ::close(first);
  ::close(listening);
}

TEST(SocketMeeting, StrangersAreNotCounted) {
  const int listening = *tcp::listen_on(0, true, 8);
  const int stranger = *tcp::connect_to("127.0.0.1", std::to_string(tcp::port_of(listening)));
  tcp::send_line(stranger, "GET / HTTP/1.1");
  const Status status = meet_by_sockets(place(0, 2, listening), 1, "", 0.5).status();
  EXPECT_THAT(status.what(), HasSubstr("1 of 2"));
  ::close(stranger);
  ::close(listening);
}

TEST(SocketMeeting, WhoIsNotThereIsNamed) {
  const int free = *tcp::listen_on(0, true, 1);
  RankEnvironment e = guest(1, 2);
  e.host = "127.0.0.1";
  e.port = tcp::port_of(free);
  ::close(free);
  const Status status = meet_by_sockets(e, 1, "", 0.3).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.what(), HasSubstr("rank 1 of 2 has not found rank 0 at 127.0.0.1 port"));
}

TEST(SocketMeeting, APortInUseIsSaid) {
  const int used = *tcp::listen_on(0, false, 1);
  RankEnvironment e = guest(0, 2);
  e.port = tcp::port_of(used);
  const Status status = meet_by_sockets(e, 1, "", 0.3).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.what(), HasSubstr("port " + std::to_string(e.port) + " is in use"));
  EXPECT_THAT(status.todo(), HasSubstr("MASTER_PORT"));
  ::close(used);
}

// Two builds, found by the environment as torchrun sets it.
TEST(StartRanks, DifferentEagletsAreRefused) {
  const int free = *tcp::listen_on(0, true, 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(tcp::port_of(free)).c_str(), 1);
  ::close(free);
  const pid_t other = ::fork();
  ::setenv("RANK", other == 0 ? "1" : "0", 1);
  const Status status = start_ranks({10, [&] { return other == 0 ? "eaglet 2" : "eaglet 1"; }}).status();
  const bool told = status.code() == StatusCode::kConfig &&
                    status.what() == "rank 1 is another eaglet than rank 0: eaglet 2 and eaglet 1";
  if (other == 0) ::_exit(told ? 0 : 1);
  EXPECT_TRUE(told) << status.message();
  int ended = -1;
  ::waitpid(other, &ended, 0);
  EXPECT_EQ(ended, 0);
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK"}) ::unsetenv(name);
}

}  // namespace
}  // namespace eaglet
