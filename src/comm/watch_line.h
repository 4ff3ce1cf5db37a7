#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// For what a rank that is done sent last to arrive.
inline constexpr double kSecondsAfterBye = 10;

/// One TCP connection from every rank to rank 0, on which nothing is said until a rank ends: "bye", or why it
/// failed. A process that dies closes its connection, so the others know within moments, whatever the
/// launcher and MPI make of it. Rank 0 tells the others.
///
///   rank 1 ---+                 "bye"            it is done
///   rank 2 ---+--- rank 0       "failed <text>"  it will end with this reason
///   rank 3 ---+                 end of stream    it is gone
///
/// A rank that waits for too long says "overdue"; rank 0 then asks all how far they are. Who does not answer,
/// or made fewer calls than the others and is not busy with what takes long, ends the run with its name.
class WatchLine {
 public:
  /// Rank 0: opens a port. The others get address() by another way and call connect(); then accept_all().
  static Result<std::unique_ptr<WatchLine>> listen(int ranks);
  /// "<port> <secret>" of a listening rank 0.
  std::string address() const;
  Status accept_all(double timeout_seconds);
  static Result<std::unique_ptr<WatchLine>> connect(const std::string& host, const std::string& address,
                                                    int rank, int ranks);
  ~WatchLine();

  /// Cheap; true once a rank failed or is gone.
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  /// A rank has said "bye": it takes part in nothing any more, though what it sent may still be on its way.
  bool missing() const { return missing_.load(std::memory_order_acquire); }
  /// Why; ok while nothing is broken.
  Status failure() const;

  /// This rank begins what all ranks do together; it is busy alone with what may take long.
  void count_call() { calls_.fetch_add(1, std::memory_order_relaxed); }
  void set_busy(bool busy) { busy_.store(busy, std::memory_order_relaxed); }
  /// This rank has waited so long: kUnavailable with the name of whom it waits for, or ok when that one is
  /// busy and wants patience. Takes a few seconds.
  Status overdue(double waited_seconds);

  /// Says "bye"; rank 0 then keeps its connections open until its process ends, the others wait for that.
  void leave_after_rank_zero(double most_seconds);
  /// Says "bye", or the reason, and hangs up.
  void leave(const Status& status);

 private:
  struct Peer {
    int rank = 0, fd = -1;
    bool done = false;
    std::string name, heard;
    bool answered = false, busy = false;  // in this inquiry
    std::uint64_t calls = 0;
  };
  WatchLine(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  void start_watching();
  void stop_watching();
  void watch();
  void hear(Peer* peer);
  void take_line(Peer* peer, const std::string& line);
  void finish(Peer* peer);
  void lose(const std::string& reason);
  void tell_all(const std::string& line);
  std::string who(const Peer& peer) const;
  void wake();
  void listen_to_wake();
  void inquire(double waited_seconds);
  bool all_answered() const;
  void judge();

  const int rank_, ranks_;
  int listening_ = -1, wake_[2] = {-1, -1};
  std::string secret_;
  std::vector<Peer> peers_;  // of rank 0: all others; else: rank 0
  std::atomic<bool> broken_{false}, missing_{false}, leaving_{false};
  mutable std::mutex mutex_;  // reason_, Peer::done, and writing to peers
  std::string reason_;
  std::atomic<std::uint64_t> calls_{0}, patience_{0};
  std::atomic<bool> busy_{false};
  std::atomic<double> asked_seconds_{0};            // of rank 0, by itself
  double inquiry_seconds_ = 0, inquiry_until_ = 0;  // of rank 0's thread; 0: there is none
  std::thread thread_;
};

}  // namespace eaglet
