#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"

namespace eaglet {

/// Bytes of a file from front to back, unpacked when it is gzip or zstd (told by its first bytes, not by its
/// name).
class ByteStream {
 public:
  /// kNotFound, kPermission.
  static Result<std::unique_ptr<ByteStream>> open(const std::string& path);
  virtual ~ByteStream() = default;
  /// Up to `room` bytes; 0 at the end. kDataLoss: the packed data is damaged or cut.
  virtual Result<std::size_t> read(char* to, std::size_t room) = 0;
};

}  // namespace eaglet
