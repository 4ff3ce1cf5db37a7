#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

// For libFuzzer targets: LLVMFuzzerTestOneInput must return 0 and call the product's own parser.

inline std::string_view as_text(const std::uint8_t* data, std::size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

/// Aborts when a promise of the code under test does not hold.
inline void promise(bool holds) {
  if (!holds) std::abort();
}

/// A file in memory for parsers that take a path.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    promise(fd_ >= 0 && (bytes == 0 || write(fd_, data, bytes) == static_cast<ssize_t>(bytes)));
  }
  ~MemoryFile() { close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};
