#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace eaglet {

/// A large array for numbers that are written and read in long stretches: memory of the process, or pages of
/// a nameless file in a directory, which the system writes out and reads back as it needs. The file is gone
/// with the object, after a kill too.
class SpillMemory {
 public:
  SpillMemory() = default;
  SpillMemory(SpillMemory&& other) noexcept;
  SpillMemory& operator=(SpillMemory&& other) noexcept;
  ~SpillMemory();

  /// At least `bytes`, whose content is lost when it has to grow. `directory` empty: memory. kNoSpace when
  /// the disk has not enough (all of it is taken at once), kNotFound, kPermission.
  Status reserve(const std::string& directory, std::uint64_t bytes);
  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }
  /// These bytes are not needed soon: of a file they no longer count as this process's memory.
  void release(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void free();
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  bool in_file_ = false;
};

}  // namespace eaglet
