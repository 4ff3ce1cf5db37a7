#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "comm/comm.h"

namespace eaglet {

/// What ranks do together with arrays in the memory of their devices, one device a rank. All ranks make the
/// same calls in the same order. Calls return at once; they begin after the device's ops so far and run in
/// order beside later ones, until join(). Arrays must not be touched before that, nor given back before
/// wait(). Same ranks and sizes: same bits on every rank.
class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;
  /// values [n] become their sums over all ranks.
  virtual Status sum(std::int64_t n, float* values) = 0;
  virtual Status sum(std::int64_t n, double* values) = 0;
  /// Rank r gets the sums of values [ranks, n_each] at r; `mine` may be its place in them.
  virtual Status sum_shares(std::int64_t n_each, const float* values, float* mine) = 0;
  /// all [ranks, n_each]: every rank's share; `mine` may be its place in them.
  virtual Status gather_shares(std::int64_t n_each, const float* mine, float* all) = 0;
  /// Rank `root`'s bytes on every rank.
  virtual Status broadcast(std::int64_t bytes, void* data, int root) = 0;
  /// Ops after this see what was done together; the host does not wait.
  virtual void join() = 0;
  /// Until all of it is done. kUnavailable when a rank is gone or has failed, or does not come before the
  /// time-out is over, which it names; nothing can be done together after that.
  virtual Status wait() = 0;
  /// This rank has failed: what is under way with the others is broken off.
  virtual void abandon() = 0;
};

struct DeviceRanksOptions {
  double timeout_seconds = 60;  // without an answer of the other ranks; 0: for ever
};

/// Over NCCL between the open CUDA devices of all ranks, which find each other through `comm`; `comm` must
/// outlive it. kNotFound when a rank has no NCCL: every rank gets to know. Only in programs built with
/// EAGLET_CUDA.
Result<std::unique_ptr<DeviceRanks>> open_device_ranks(Comm& comm, const DeviceRanksOptions& options);

/// `host`, where arrays in device memory go through `device` instead, and are there when a call returns.
std::unique_ptr<Comm> with_device_ranks(std::unique_ptr<Comm> host, std::unique_ptr<DeviceRanks> device);

}  // namespace eaglet
