#include "train/device_reducer.h"

#include <algorithm>

#include "base/clock.h"

namespace eaglet {

// This rank fails in the middle of an update: nobody may add into memory that is given back.
DeviceReducer::~DeviceReducer() {
  if (active_) ranks_.abandon();
}

void DeviceReducer::begin() {
  active_ = true;
  first_asked_ = elements_;
  status_ = Status();
}

void DeviceReducer::ready(std::int64_t first_final) {
  while (status_.ok() && first_asked_ > 0) {
    const std::int64_t begin = std::max<std::int64_t>(0, first_asked_ - bucket_);
    if (begin < first_final) return;
    status_ = ranks_.sum(first_asked_ - begin, gradients_ + begin);
    first_asked_ = begin;
  }
}

// The host waits by asking again and again, since a device would wait for ever for a rank that is gone. What
// this rank's own backward takes is no wait for others.
Status DeviceReducer::finish() {
  EAGLET_RETURN_IF_ERROR(status_);
  EAGLET_RETURN_IF_ERROR(device_.wait());
  const double since = monotonic_seconds();
  EAGLET_RETURN_IF_ERROR(ranks_.wait());
  active_ = false;
  waited_seconds_ += monotonic_seconds() - since;
  return {};
}

}  // namespace eaglet
