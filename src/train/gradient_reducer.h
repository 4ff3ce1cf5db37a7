#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "comm/comm.h"

namespace eaglet {

/// Sums a block of gradients over all ranks, bucket by bucket from its end, while backward is still working
/// on the front: backward finishes the head first and fc last, which is the block's order turned round. A
/// thread of its own waits for the other ranks, so nobody else may use the Comm between begin() and finish().
class GradientReducer {
 public:
  /// `gradients` [elements] stay where they are for this object's life. Small buckets overlap more, large
  /// ones cost fewer messages.
  GradientReducer(Comm& comm, float* gradients, std::int64_t elements,
                  std::int64_t bucket_elements = 1 << 20);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  void begin();
  /// Elements from `first_final` to the end will not change any more on this rank.
  void ready(std::int64_t first_final);
  /// Waits until everything is summed (ready(0) must have been called); the first failure of a bucket.
  Status finish();
  /// Seconds finish() has waited so far: what could not be hidden behind backward.
  double waited_seconds() const { return waited_seconds_; }

 private:
  void work();
  Comm& comm_;
  float* const gradients_;
  const std::int64_t elements_, bucket_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t first_final_, first_summed_;  // falling; equal to elements_: nothing yet
  bool active_ = false, stop_ = false;
  Status status_;
  double waited_seconds_ = 0;
  std::thread thread_;  // last: it starts when everything above stands
};

}  // namespace eaglet
