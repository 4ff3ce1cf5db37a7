#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

class DeviceRanks;

/// A rank's place among the ranks of a run, and what they do together. All ranks make the same calls in the
/// same order, one thread of a rank at a time. When a rank is gone or has failed, calls that wait for it end
/// with kUnavailable, which names it and, when it could say so, its reason; nothing can be done together
/// after that. Results are the same bits on every rank.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual int ranks_here() const = 0;  // on this machine
  /// Which of those this one is, from 0: a device's number.
  virtual int rank_here() const { return rank(); }
  /// values [n] become their sums over all ranks.
  virtual Status sum(std::int64_t n, float* values) = 0;
  virtual Status sum(std::int64_t n, double* values) = 0;
  /// Rank `root`'s bytes on every rank.
  virtual Status broadcast(std::int64_t bytes, void* data, int root) = 0;
  /// One rank's bytes to one other.
  virtual Status send(std::int64_t bytes, const void* data, int to) = 0;
  virtual Status receive(std::int64_t bytes, void* data, int from) = 0;
  /// kUnavailable, as the calls above, once it is known that a rank is gone or has failed; waits for nobody.
  virtual Status check() { return {}; }

  /// For what the ranks do together by another way (their devices): a call of it begins here; and this rank
  /// has waited so long in it: kUnavailable that names whom it waits for, or ok when that rank is busy.
  virtual void count_call() {}
  virtual Status overdue(double waited_seconds);
  /// This rank does alone what may take longer than the others would wait: they have patience.
  virtual void set_busy(bool) {}
  /// What the ranks' devices do together; nullptr where they have none.
  virtual DeviceRanks* device_ranks() { return nullptr; }

  /// The last call where all ranks fail alike, in the same step: waits until all have come here, and on the
  /// other ranks until rank 0, which does the talking, has ended. A launcher that sees one rank fail ends the
  /// rest.
  virtual void leave_together() = 0;
  /// The last call otherwise: this rank is done (kOk), or failed for a reason that the others then get to
  /// read.
  virtual void leave(const Status& status) = 0;
};

/// A run of one rank: sums and broadcasts change nothing.
std::unique_ptr<Comm> one_rank();

/// While it lives, set_busy().
class Busy {
 public:
  explicit Busy(Comm& comm) : comm_(comm) { comm_.set_busy(true); }
  ~Busy() { comm_.set_busy(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Comm& comm_;
};

struct RanksOptions {
  double timeout_seconds = 0;  // a rank that lives and does not come is waited for so long; 0: for ever
  std::function<std::string()> build;  // which eaglet this is, asked of several ranks: others are refused
};

/// As the launcher says: mpirun or srun with several tasks gives MPI; torchrun's environment variables, also
/// set for the tasks of srun, give sockets; everything else one rank. kConfig when several tasks were started
/// that cannot find each other, or that are different eaglets; kUnavailable when one does not come.
Result<std::unique_ptr<Comm>> start_ranks(const RanksOptions& options = {});
/// "Open MPI v4.1.4", or "" when this eaglet was built without MPI.
std::string mpi_version();

/// Rank `root`'s text on every rank.
Status share_text(Comm& comm, int root, std::string* text);
/// Every rank's text, by rank, on every rank.
Result<std::vector<std::string>> gather_texts(Comm& comm, const std::string& mine);

}  // namespace eaglet
