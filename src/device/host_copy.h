#pragma once

#include <cstdint>

namespace eaglet {

/// memcpy on all threads where it pays: one core fills a device's link only in part.
void copy_with_threads(void* to, const void* from, std::uint64_t bytes);

}  // namespace eaglet
