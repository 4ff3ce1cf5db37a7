#pragma once

#include <atomic>
#include <cstdint>

namespace eaglet {

// Where an array lies decides where work on it is done: ops have one signature, and a call whose result lies
// in a device's memory runs on that device (docs/gpu.md). A device and the host never share an address.

/// A block of device memory from now on, until forget_device_block(). At most kMostDeviceBlocks at once:
/// blocks are arenas, not single arrays.
void note_device_block(const void* begin, std::uint64_t bytes);
void forget_device_block(const void* begin);
inline constexpr int kMostDeviceBlocks = 256;

namespace place_detail {
extern std::atomic<int> device_blocks;
bool in_device_block(const void* address);
}  // namespace place_detail

/// Does the address lie in device memory? Without a device this is one comparison.
inline bool on_device(const void* address) {
  return place_detail::device_blocks.load(std::memory_order_relaxed) != 0 &&
         place_detail::in_device_block(address);
}

}  // namespace eaglet
