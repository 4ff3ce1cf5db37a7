#include "base/spill_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "base/files.h"

namespace eaglet {
namespace {

/// A file without a name; where the file system has no such files, one whose name is gone at once.
Result<int> nameless_file(const std::string& directory) {
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  if (errno != EOPNOTSUPP && errno != EISDIR) return errno_status("make a file in", directory, errno);
  std::string name = directory + "/eaglet-spill-XXXXXX";
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return errno_status("make a file in", directory, errno);
  ::unlink(name.c_str());
  return fd;
}

Result<void*> map(int fd, std::uint64_t bytes, const std::string& where) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data != MAP_FAILED) return data;
  return Status(StatusCode::kNoSpace,
                fmt::format("{} of memory are not to be had", human_bytes(static_cast<double>(bytes))), where,
                "give a smaller --memory");
}

}  // namespace

SpillMemory::SpillMemory(SpillMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      in_file_(other.in_file_) {}

SpillMemory& SpillMemory::operator=(SpillMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(in_file_, other.in_file_);
  return *this;
}

SpillMemory::~SpillMemory() {
  free();
}

void SpillMemory::free() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

Status SpillMemory::reserve(const std::string& directory, std::uint64_t bytes) {
  if (bytes <= bytes_) return {};
  free();
  in_file_ = !directory.empty();
  int fd = -1;
  if (in_file_) {
    EAGLET_ASSIGN_OR_RETURN(fd, nameless_file(directory));
    // Taken now: a page that finds no room when it is written would kill the process.
    if (const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
      ::close(fd);
      const Status status = errno_status("take room in", directory, error == EFBIG ? ENOSPC : error);
      return Status(status.code(),
                    fmt::format("{}: {} are needed for the rows of a pass", status.what(),
                                human_bytes(static_cast<double>(bytes))),
                    directory, "free some, or leave --spill out");
    }
  }
  Result<void*> data = map(fd, bytes, directory);
  if (fd >= 0) ::close(fd);  // the mapping keeps the file
  if (!data.ok()) return data.status();
  data_ = *data;
  bytes_ = bytes;
  return {};
}

void SpillMemory::release(std::uint64_t offset, std::uint64_t bytes) const {
  if (!in_file_) return;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
  if (begin < end) ::madvise(static_cast<char*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace eaglet
