#pragma once

#include <cstddef>

namespace emulation {

/// Memory whose end lies at a page that faults, and whose beginning follows one. Aligned to 16 bytes. Fresh
/// bytes are 0xff: a NaN in fp32, bf16 and fp64 (beyond 2 MiB only in the first and last page).
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// Closed memory faults at every access.
  void open();
  void close();
  /// Were the bytes between the end and the next page (fewer than 16) left alone? Memory has to be open.
  bool tail_is_whole() const;
  /// Does the address lie in the memory or its two pages?
  bool near(const void* address) const;

 private:
  char* block_ = nullptr;
  std::size_t mapped_ = 0, bytes_ = 0;
  char* data_ = nullptr;
};

}  // namespace emulation
