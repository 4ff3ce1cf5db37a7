#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace eaglet {

/// A dequantised copy of a GGUF model in memory (an anonymous file: nothing on a disk, nothing to clean up;
/// the kernel frees it with the last user). path() can be loaded by libllama while the object lives, and what
/// was mapped from it stays valid after.
class WidenedCopy {
 public:
  /// `bits` 16 (f16) or 32. kNoSpace when the memory is not there, kUnavailable when llama.cpp refused.
  static Result<WidenedCopy> make(const std::string& model_path, int bits, int threads);
  WidenedCopy(WidenedCopy&& other) noexcept;
  WidenedCopy& operator=(WidenedCopy&&) = delete;
  ~WidenedCopy();
  std::string path() const;

 private:
  explicit WidenedCopy(int fd) : fd_(fd) {}
  int fd_ = -1;
};

/// Bytes the copy would take; 0 when all matrices of the file are of 16 or 32 bits already.
Result<std::uint64_t> widened_bytes(const std::string& model_path, int bits);
/// What the kernel would still give out (MemAvailable).
std::uint64_t available_memory_bytes();

}  // namespace eaglet
