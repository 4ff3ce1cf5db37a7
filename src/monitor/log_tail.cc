#include "monitor/log_tail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"

namespace eaglet::monitor {
namespace {
constexpr std::uint64_t kWhole = 32u << 20, kHead = 256u << 10, kTail = 4u << 20, kBlock = 64u << 10;

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
}  // namespace

LogTail::~LogTail() {
  if (fd_ >= 0) ::close(fd_);
}

bool LogTail::open_file() {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return false;
  }
  if (fd_ >= 0) {
    reader_.feed("\n");  // what the old file left unended ends here
    ::close(fd_);
  }
  fd_ = fd;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  offset_ = 0;
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes > kWhole) {
    feed(0, kHead);
    reader_.feed("\n");
    offset_ = bytes - kTail;
    note_ = fmt::format("log of {}: the first {} and the last {} were read",
                        human_bytes(static_cast<double>(bytes)), human_bytes(kHead), human_bytes(kTail));
  }
  return true;
}

void LogTail::feed(std::uint64_t from, std::uint64_t until) {
  std::string block(std::min<std::uint64_t>(kBlock, until - from), '\0');
  while (from < until) {
    const ssize_t got = ::pread(fd_, block.data(), std::min<std::uint64_t>(block.size(), until - from),
                                static_cast<off_t>(from));
    if (got <= 0) break;
    reader_.feed(std::string_view(block).substr(0, static_cast<std::size_t>(got)));
    from += static_cast<std::uint64_t>(got);
  }
  offset_ = from;
}

bool LogTail::poll() {
  struct stat named = {};
  const bool there = ::stat(path_.c_str(), &named) == 0;
  const bool other = there && fd_ >= 0 && (named.st_ino != inode_ || named.st_dev != device_);
  if (other) {  // rotated: the rest of the old file first
    struct stat old = {};
    if (::fstat(fd_, &old) == 0 && static_cast<std::uint64_t>(old.st_size) > offset_)
      feed(offset_, static_cast<std::uint64_t>(old.st_size));
  }
  if ((fd_ < 0 || other) && !(there && open_file())) return fd_ >= 0;
  struct stat info = {};
  if (::fstat(fd_, &info) != 0) return true;
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  mtime_ = seconds_of(info.st_mtim);
  if (bytes < offset_) {  // truncated
    reader_.feed("\n");
    offset_ = 0;
  }
  if (bytes > offset_) feed(offset_, bytes);
  return true;
}

LogFacts LogTail::facts() const {
  LogFacts facts = reader_.facts();
  facts.bytes = offset_;
  return facts;
}

LogMoment LogTail::moment() const {
  LogMoment moment;
  if (fd_ < 0) return moment;
  const LogFacts facts = reader_.facts();
  moment.known = true;
  moment.bytes = static_cast<double>(offset_);
  moment.mtime = mtime_;
  moment.records = facts.records + facts.bars;
  moment.last_step = facts.last_step;
  return moment;
}

}  // namespace eaglet::monitor
