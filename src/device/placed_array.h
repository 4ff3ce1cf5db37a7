#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/accelerator.h"

namespace eaglet {

/// Numbers in the host's memory or in a device's. Where they lie decides where ops on them run (place.h); the
/// host reads and writes a device's with write() and read() only. An array on a device is gone before the
/// device closes.
template <class T>
class PlacedArray {
 public:
  PlacedArray() = default;
  ~PlacedArray() { clear(); }
  PlacedArray(PlacedArray&& other) noexcept { *this = std::move(other); }
  PlacedArray& operator=(PlacedArray&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    return *this;
  }
  PlacedArray(const PlacedArray&) = delete;
  PlacedArray& operator=(const PlacedArray&) = delete;

  /// Takes memory for n numbers: zeros on the host, any content on a device. kNoSpace when the device has no
  /// more. What was held before is given back.
  Status take(std::int64_t n, Accelerator* device) {
    clear();
    if (device == nullptr) {
      host_.assign(static_cast<std::size_t>(n), T());
    } else if (n > 0) {
      EAGLET_ASSIGN_OR_RETURN(void* memory, device->take(static_cast<std::uint64_t>(n) * sizeof(T)));
      memory_ = static_cast<T*>(memory);
      device_ = device;
    }
    size_ = n;
    return {};
  }
  void clear() {
    if (memory_ != nullptr) device_->give_back(memory_);
    host_ = {};
    memory_ = nullptr;
    device_ = nullptr;
    size_ = 0;
  }

  T* data() { return memory_ != nullptr ? memory_ : host_.data(); }
  const T* data() const { return memory_ != nullptr ? memory_ : host_.data(); }
  std::int64_t size() const { return size_; }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(size_) * sizeof(T); }
  bool on_device() const { return memory_ != nullptr; }

  /// Numbers [first, first + n) from the host's memory, which may change when it returns; in order with the
  /// ops.
  void write(std::int64_t first, std::int64_t n, const T* from) {
    if (memory_ != nullptr)
      device_->to_device(memory_ + first, from, static_cast<std::uint64_t>(n) * sizeof(T));
    else
      std::copy_n(from, n, host_.data() + first);
  }
  /// Numbers [first, first + n) to the host's memory, after the ops before; waits for them.
  void read(std::int64_t first, std::int64_t n, T* to) const {
    if (memory_ != nullptr)
      device_->to_host(to, memory_ + first, static_cast<std::uint64_t>(n) * sizeof(T));
    else
      std::copy_n(host_.data() + first, n, to);
  }
  std::vector<T> to_host() const {
    std::vector<T> values(static_cast<std::size_t>(size_));
    read(0, size_, values.data());
    return values;
  }

 private:
  std::vector<T> host_;
  Accelerator* device_ = nullptr;  // that memory_ is of
  T* memory_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace eaglet
