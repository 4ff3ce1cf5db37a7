#include "comm/comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "comm/watch_line.h"

namespace eaglet {
namespace {

using testing::HasSubstr;

TEST(OneRank, ChangesNothing) {
  const auto comm = one_rank();
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->ranks(), 1);
  float value = 3;
  ASSERT_TRUE(comm->sum(1, &value).ok());
  EXPECT_EQ(value, 3);
  std::string text = "abc";
  ASSERT_TRUE(share_text(*comm, 0, &text).ok());
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(gather_texts(*comm, "x")->size(), 1u);
  EXPECT_FALSE(comm->send(1, &value, 1).ok());
}

// Several tasks that cannot find each other must not all train into one directory.
TEST(StartRanks, TasksThatDoNotKnowEachOtherAreRefused) {
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  const Status status = start_ranks().status();
  unsetenv("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(status.code(), StatusCode::kConfig);
  EXPECT_THAT(status.what(), HasSubstr("4 tasks"));
  EXPECT_TRUE(start_ranks().ok());
}

// Rank 0 and the others in one process.
struct Lines {
  explicit Lines(int ranks) {
    zero = std::move(*WatchLine::listen(ranks));
    for (int rank = 1; rank < ranks; ++rank)
      others.push_back(std::move(*WatchLine::connect("127.0.0.1", zero->address(), rank, ranks)));
    const Status met = zero->accept_all(10);
    EXPECT_TRUE(met.ok()) << met.message();
  }
  std::unique_ptr<WatchLine> zero;
  std::vector<std::unique_ptr<WatchLine>> others;
};

bool within_seconds(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    ::usleep(10000);
  }
  return false;
}

TEST(WatchLine, ARankThatEndsWithoutAWordIsNamedToAll) {
  Lines lines(3);
  EXPECT_FALSE(lines.zero->broken());
  lines.others[1].reset();  // the kernel closes a dead process's socket just so
  ASSERT_TRUE(within_seconds([&] { return lines.zero->broken() && lines.others[0]->broken(); }));
  EXPECT_THAT(lines.zero->failure().what(), HasSubstr("rank 2 of 3"));
  EXPECT_THAT(lines.others[0]->failure().what(), HasSubstr("rank 2 of 3"));
  EXPECT_EQ(lines.zero->failure().code(), StatusCode::kUnavailable);
}

TEST(WatchLine, AReasonReachesTheOthers) {
  Lines lines(3);
  lines.others[0]->leave(Status(StatusCode::kDataLoss, "bad document", "shard 7"));
  ASSERT_TRUE(within_seconds([&] { return lines.zero->broken() && lines.others[1]->broken(); }));
  EXPECT_THAT(lines.others[1]->failure().what(), HasSubstr("rank 1 of 3"));
  EXPECT_THAT(lines.others[1]->failure().what(), HasSubstr("bad document (shard 7)"));
}

TEST(WatchLine, RankZeroIsMissedToo) {
  Lines gone(2);
  gone.zero.reset();
  ASSERT_TRUE(within_seconds([&] { return gone.others[0]->broken(); }));
  EXPECT_THAT(gone.others[0]->failure().what(), HasSubstr("rank 0 of 2"));
  Lines failed(2);
  failed.zero->leave(Status(StatusCode::kNoSpace, "the disk is full"));
  ASSERT_TRUE(within_seconds([&] { return failed.others[0]->broken(); }));
  EXPECT_THAT(failed.others[0]->failure().what(), HasSubstr("the disk is full"));
}

TEST(WatchLine, ByeIsNoFailure) {
  Lines lines(3);
  lines.others[0]->leave({});
  lines.others[0].reset();
  lines.zero->leave({});
  ::usleep(100000);
  EXPECT_FALSE(lines.zero->broken());
  EXPECT_FALSE(lines.others[1]->broken());
}

TEST(WatchLine, TheOthersEndAfterRankZero) {
  Lines lines(2);
  std::atomic<bool> ended{false};
  lines.zero->leave_after_rank_zero(0);
  std::thread other([&] {
    lines.others[0]->leave_after_rank_zero(0.5);  // rank 0 keeps its side open until its process ends
    ended = true;
  });
  ::usleep(200000);
  EXPECT_FALSE(ended);
  other.join();
  EXPECT_FALSE(lines.others[0]->broken());
}

TEST(WatchLine, StrangersAreNotCounted) {
  auto zero = std::move(*WatchLine::listen(2));
  const std::string address = zero->address();
  auto stranger = WatchLine::connect("127.0.0.1", address.substr(0, address.find(' ')) + " wrong", 1, 2);
  const Status status = zero->accept_all(0.3);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.what(), HasSubstr("1 of 2"));
}

}  // namespace
}  // namespace eaglet
