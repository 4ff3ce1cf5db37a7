#include "train/rank_agreement.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

namespace eaglet {
namespace {

/// Three ranks on three threads of one process, as far as texts go round.
struct Table {
  std::barrier<> meet{3};
  std::vector<char> bytes;
};
class ThreadComm : public Comm {
 public:
  ThreadComm(int rank, Table* table) : rank_(rank), table_(table) {}
  int rank() const override { return rank_; }
  int ranks() const override { return 3; }
  int ranks_here() const override { return 3; }
  Status sum(std::int64_t, float*) override { return Status(StatusCode::kInternal, "not used here"); }
  Status sum(std::int64_t, double*) override { return Status(StatusCode::kInternal, "not used here"); }
  Status broadcast(std::int64_t bytes, void* data, int root) override {
    if (rank_ == root) table_->bytes.assign(static_cast<char*>(data), static_cast<char*>(data) + bytes);
    table_->meet.arrive_and_wait();
    std::memcpy(data, table_->bytes.data(), static_cast<std::size_t>(bytes));
    table_->meet.arrive_and_wait();
    return {};
  }
  Status send(std::int64_t, const void*, int) override {
    return Status(StatusCode::kInternal, "not used here");
  }
  Status receive(std::int64_t, void*, int) override { return Status(StatusCode::kInternal, "not used here"); }
  void leave_together() override {}
  void leave(const Status&) override {}

 private:
  int rank_;
  Table* table_;
};

/// What each of three ranks answers when rank 1's weights have one bit of one number flipped, or none.
std::vector<int> answers(bool flipped) {
  Table table;
  std::vector<int> found(3, -2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      ThreadComm comm(rank, &table);
      DraftWeights draft;
      draft.values.assign(1000, 0.5f);
      if (flipped && rank == 1) draft.values[700] = std::nextafter(0.5f, 1.0f);
      const auto other = rank_with_other_weights(comm, draft);
      if (other.ok()) found[static_cast<std::size_t>(rank)] = *other;
    });
  for (std::thread& rank : ranks) rank.join();
  return found;
}

TEST(RanksAgree, OneFlippedBitIsFoundAndAllRanksKnow) {
  EXPECT_EQ(answers(false), std::vector<int>({-1, -1, -1}));
  EXPECT_EQ(answers(true), std::vector<int>({1, 1, 1}));
}

}  // namespace
}  // namespace eaglet
