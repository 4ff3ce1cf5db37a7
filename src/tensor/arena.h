#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace eaglet {

/// One block of fp32 memory, planned first and taken once: book() every buffer, allocate(), then ask for
/// pointers. Buffers start at 64-byte boundaries. Pages are not touched before they are used, so what a batch
/// does not need costs no resident memory. In debug builds fresh memory is NaN, so a missing write shows.
class FloatArena {
 public:
  using Handle = std::size_t;
  Handle book(std::string name, std::int64_t floats);
  /// Returns false when the system has not that much memory.
  bool allocate();
  float* at(Handle handle) { return base_ + offsets_[handle]; }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(total_) * sizeof(float); }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(float* block) const;
  };
  std::vector<std::string> names_;
  std::vector<std::int64_t> offsets_;
  std::int64_t total_ = 0;
  std::unique_ptr<float, Unmap> block_{nullptr, Unmap{0}};
  float* base_ = nullptr;
};

}  // namespace eaglet
