#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "comm/comm.h"
#include "train/gradient_reducer.h"

namespace eaglet {

/// In the host's memory: a thread of its own waits for the other ranks, so nobody else may use the Comm
/// between begin() and finish().
class HostReducer : public GradientReducer {
 public:
  /// `gradients` [elements] stay where they are for this object's life. Small buckets overlap more, large
  /// ones cost fewer messages.
  HostReducer(Comm& comm, float* gradients, std::int64_t elements, std::int64_t bucket_elements = 1 << 20);
  ~HostReducer() override;
  HostReducer(const HostReducer&) = delete;
  HostReducer& operator=(const HostReducer&) = delete;

  void begin() override;
  void ready(std::int64_t first_final) override;
  Status finish() override;
  double waited_seconds() const override { return waited_seconds_; }

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
