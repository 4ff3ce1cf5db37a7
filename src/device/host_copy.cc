#include "device/host_copy.h"

#include <cstring>

#include "device/threads.h"

namespace eaglet {

void copy_with_threads(void* to, const void* from, std::uint64_t bytes) {
  constexpr std::int64_t kGrainBytes = std::int64_t{256} << 10;
  parallel_for(static_cast<std::int64_t>(bytes), kGrainBytes, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

}  // namespace eaglet
