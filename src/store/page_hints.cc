#include "store/page_hints.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace eaglet {
namespace {

void advise(const MappedFile& file, std::uint64_t offset, std::uint64_t bytes, int advice) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = offset / page * page, end = std::min(file.bytes(), offset + bytes);
  if (first < end) ::madvise(const_cast<std::byte*>(file.data()) + first, end - first, advice);
}

}  // namespace

void read_scattered(const MappedFile& file) {
  advise(file, 0, file.bytes(), MADV_RANDOM);
}

void will_read(const MappedFile& file, std::uint64_t offset, std::uint64_t bytes) {
  advise(file, offset, bytes, MADV_WILLNEED);
}

}  // namespace eaglet
