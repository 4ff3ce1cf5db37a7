#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/placed_array.h"

namespace eaglet {

/// One block of fp32 memory, planned first and taken once: book() every buffer, allocate(), then ask for
/// pointers. Buffers start at 64-byte boundaries of the block. On the host pages are not touched before they
/// are used, so what a batch does not need costs no resident memory, and in debug builds fresh memory is NaN,
/// so a missing write shows.
class FloatArena {
 public:
  using Handle = std::size_t;
  Handle book(std::string name, std::int64_t floats);
  /// In the device's memory, or the host's when there is none. kNoSpace when it has not that much.
  Status allocate(Accelerator* device);
  float* at(Handle handle) { return base_ + offsets_[handle]; }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(total_) * sizeof(float); }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(float* block) const;
  };
  Status map();
  std::vector<std::string> names_;
  std::vector<std::int64_t> offsets_;
  std::int64_t total_ = 0;
  std::unique_ptr<float, Unmap> block_{nullptr, Unmap{0}};
  PlacedArray<float> on_device_;
  float* base_ = nullptr;
};

}  // namespace eaglet
