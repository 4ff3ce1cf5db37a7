#include "device/float_arena.h"

#include <sys/mman.h>

#include <limits>
#include <utility>

namespace eaglet {

FloatArena::Handle FloatArena::book(std::string name, std::int64_t floats) {
  constexpr std::int64_t kAlignFloats = 16;  // 64 bytes: a cache line and the widest vector
  names_.push_back(std::move(name));
  offsets_.push_back(total_);
  total_ += (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  return offsets_.size() - 1;
}

Status FloatArena::allocate(Accelerator* device) {
  if (total_ == 0) return {};
  if (device == nullptr) return map();
  EAGLET_RETURN_IF_ERROR(on_device_.take(total_, device));
  base_ = on_device_.data();
  return {};
}

Status FloatArena::map() {
  const std::size_t wanted = bytes();
  void* block = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    return Status(StatusCode::kNoSpace,
                  "the system has no " + std::to_string(wanted >> 20) + " MiB of memory left");
  madvise(block, wanted, MADV_HUGEPAGE);  // fewer page faults on the first pass; only a hint
  block_ = std::unique_ptr<float, Unmap>(static_cast<float*>(block), Unmap{wanted});
  base_ = block_.get();
#ifndef NDEBUG
  for (std::int64_t i = 0; i < total_; ++i) base_[i] = std::numeric_limits<float>::quiet_NaN();
#endif
  return {};
}

void FloatArena::Unmap::operator()(float* block) const {
  munmap(block, bytes);
}

}  // namespace eaglet
