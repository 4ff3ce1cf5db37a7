#pragma once

#include <cstdint>

namespace eaglet::cuda {

/// Deals out one block of an op's memory in parts aligned to 256 bytes; without a block it only counts.
class Dealer {
 public:
  explicit Dealer(char* block) : block_(block) {}
  template <class T>
  T* deal(std::int64_t count) {
    T* at = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + bytes_);
    bytes_ += (static_cast<std::uint64_t>(count) * sizeof(T) + 255) / 256 * 256;
    return at;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  char* block_;
  std::uint64_t bytes_ = 0;
};

}  // namespace eaglet::cuda
