#pragma once

#include <cstdint>

#include "base/files.h"

namespace eaglet {

// Hints to the kernel about a mapped file; nothing depends on them.

/// The file is read here and there: a page that is touched brings no others along.
void read_scattered(const MappedFile& file);
/// These bytes are read next, all of them.
void will_read(const MappedFile& file, std::uint64_t offset, std::uint64_t bytes);

}  // namespace eaglet
