#include "train/host_reducer.h"

#include <algorithm>

#include "base/clock.h"

namespace eaglet {

HostReducer::HostReducer(Comm& comm, float* gradients, std::int64_t elements, std::int64_t bucket_elements)
    : comm_(comm),
      gradients_(gradients),
      elements_(elements),
      bucket_(bucket_elements),
      first_final_(elements),
      first_summed_(elements),
      thread_([this] { work(); }) {}

HostReducer::~HostReducer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostReducer::begin() {
  const std::lock_guard lock(mutex_);
  first_final_ = first_summed_ = elements_;
  status_ = Status();
  active_ = true;
}

void HostReducer::ready(std::int64_t first_final) {
  {
    const std::lock_guard lock(mutex_);
    first_final_ = std::min(first_final_, first_final);
  }
  changed_.notify_all();
}

Status HostReducer::finish() {
  const double since = monotonic_seconds();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return first_summed_ == 0 || !status_.ok(); });
  active_ = false;
  waited_seconds_ += monotonic_seconds() - since;
  return status_;
}

// The buckets and their order are the same on every rank, however far backward has come on each.
void HostReducer::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto next = [this] { return std::max<std::int64_t>(0, first_summed_ - bucket_); };
    changed_.wait(lock, [&] {
      return stop_ || (active_ && status_.ok() && first_summed_ > 0 && first_final_ <= next());
    });
    if (stop_) return;
    const std::int64_t begin = next(), end = first_summed_;
    lock.unlock();
    const Status status = comm_.sum(end - begin, gradients_ + begin);
    lock.lock();
    if (status.ok())
      first_summed_ = begin;
    else
      status_ = status;
    changed_.notify_all();
  }
}

}  // namespace eaglet
