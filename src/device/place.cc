#include "device/place.h"

#include <cstdlib>

namespace eaglet {
namespace {

struct Block {
  const char* begin = nullptr;
  const char* end = nullptr;
};

// Only the thread that drives the device makes and forgets blocks; nobody asks about them elsewhere.
Block blocks[kMostDeviceBlocks];

}  // namespace

std::atomic<int> place_detail::device_blocks{0};

bool place_detail::in_device_block(const void* address) {
  const int count = device_blocks.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i)
    if (address >= blocks[i].begin && address < blocks[i].end) return true;
  return false;
}

void note_device_block(const void* begin, std::uint64_t bytes) {
  const int count = place_detail::device_blocks.load();
  if (count == kMostDeviceBlocks) std::abort();  // a bug of ours: see the header
  blocks[count].begin = static_cast<const char*>(begin);
  blocks[count].end = blocks[count].begin + bytes;
  place_detail::device_blocks.store(count + 1);
}

void forget_device_block(const void* begin) {
  const int count = place_detail::device_blocks.load();
  for (int i = 0; i < count; ++i)
    if (blocks[i].begin == begin) {
      blocks[i] = blocks[count - 1];
      place_detail::device_blocks.store(count - 1);
      return;
    }
}

}  // namespace eaglet
