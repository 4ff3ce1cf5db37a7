#include "guarded_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace emulation {
namespace {

constexpr std::size_t kPage = 4096, kAlign = 16, kFilledWhole = 2 << 20;

std::size_t up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

GuardedMemory::GuardedMemory(std::size_t bytes) : bytes_(bytes) {
  const std::size_t aligned = up(bytes, kAlign), pages = up(aligned, kPage);
  mapped_ = pages + 2 * kPage;
  void* block = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) std::abort();
  block_ = static_cast<char*>(block);
  data_ = block_ + kPage + pages - aligned;
  open();
  // Of large memory only the ends: pages that nobody touched cost nothing to open and close.
  const std::size_t filled = pages > kFilledWhole ? kPage : pages;
  std::memset(block_ + kPage, 0xff, filled);
  std::memset(block_ + kPage + pages - filled, 0xff, filled);
}

GuardedMemory::~GuardedMemory() {
  munmap(block_, mapped_);
}

void GuardedMemory::open() {
  if (mapped_ > 2 * kPage) mprotect(block_ + kPage, mapped_ - 2 * kPage, PROT_READ | PROT_WRITE);
}

void GuardedMemory::close() {
  if (mapped_ > 2 * kPage) mprotect(block_ + kPage, mapped_ - 2 * kPage, PROT_NONE);
}

bool GuardedMemory::tail_is_whole() const {
  for (const char* at = data_ + bytes_; at < block_ + mapped_ - kPage; ++at)
    if (static_cast<unsigned char>(*at) != 0xff) return false;
  return true;
}

bool GuardedMemory::near(const void* address) const {
  const char* at = static_cast<const char*>(address);
  return at >= block_ && at < block_ + mapped_;
}

}  // namespace emulation
