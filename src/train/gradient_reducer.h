#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "comm/comm.h"
#include "device/accelerator.h"

namespace eaglet {

/// Sums a block of gradients over all ranks, bucket by bucket from its end, while backward is still working
/// on the front: backward finishes the head first and fc last, which is the block's order turned round. The
/// buckets and their order are the same on every rank, however far backward has come on each.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  virtual void begin() = 0;
  /// Elements from `first_final` to the end will not change any more on this rank.
  virtual void ready(std::int64_t first_final) = 0;
  /// Waits until everything is summed (ready(0) must have been called); the first failure of a bucket.
  virtual Status finish() = 0;
  /// Seconds finish() has waited for other ranks so far: what could not be hidden behind backward.
  virtual double waited_seconds() const = 0;
};

/// `gradients` [elements] stay where they are, in the memory of `device` or, without one, the host's.
std::unique_ptr<GradientReducer> make_gradient_reducer(Comm& comm, Accelerator* device, float* gradients,
                                                       std::int64_t elements);

}  // namespace eaglet
