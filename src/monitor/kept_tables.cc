#include "monitor/kept_tables.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace eaglet::monitor {
namespace {

constexpr const char* kNames[] = {"stat", "io", "schedstat", "wchan"};
constexpr std::size_t kMostTableBytes = std::size_t{1} << 16;

bool is_kernel_table(int fd) {
  constexpr decltype(statfs::f_type) kProcMagic = 0x9fa0;
  struct statfs info = {};
  return ::fstatfs(fd, &info) == 0 && info.f_type == kProcMagic;
}

int open_table(const std::string& proc, std::int64_t pid, std::size_t table) {
  return ::open(fmt::format("{}/{}/{}", proc, pid, kNames[table]).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace

const char* KeptTables::name(Table table) {
  return kNames[static_cast<std::size_t>(table)];
}

KeptTables::KeptTables() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    most_ = limit.rlim_cur == RLIM_INFINITY ? 65536 : static_cast<std::size_t>(limit.rlim_cur) / 2;
}

KeptTables::~KeptTables() {
  while (!kept_.empty()) forget(kept_.begin()->first);
}

/// From the start; a kernel table is written anew for each read at 0.
std::string_view KeptTables::fill(int fd) {
  text_.resize(4096);
  std::size_t length = 0;
  ssize_t got = 0;
  while ((got = ::pread(fd, text_.data() + length, text_.size() - length, static_cast<off_t>(length))) > 0) {
    length += static_cast<std::size_t>(got);
    if (length < text_.size()) break;  // all of these tables come in one piece
    if (length >= kMostTableBytes) break;
    text_.resize(2 * text_.size());
  }
  return got < 0 ? std::string_view() : std::string_view(text_).substr(0, length);
}

/// The kept descriptor, or a new one to keep; -1: it cannot be opened. Which must be closed again: *passing.
int KeptTables::descriptor(const std::string& proc, std::int64_t pid, Table table, bool* passing) {
  const auto at = static_cast<std::size_t>(table);
  const auto it = kept_.find(pid);
  *passing = false;
  if (it != kept_.end() && it->second[at] >= 0) return it->second[at];
  const int fd = open_table(proc, pid, at);
  *passing = fd >= 0 && (open_ >= most_ || !is_kernel_table(fd));
  if (fd < 0 || *passing) return fd;
  auto& tables =
      it != kept_.end() ? it->second : kept_.emplace(pid, std::array{-1, -1, -1, -1}).first->second;
  tables[at] = fd;
  ++open_;
  return fd;
}

std::string_view KeptTables::read(const std::string& proc, std::int64_t pid, Table table) {
  bool passing = false;
  const int fd = descriptor(proc, pid, table, &passing);
  if (fd < 0) return {};
  const std::string_view text = fill(fd);
  if (passing) ::close(fd);
  return text;
}

void KeptTables::forget(std::int64_t pid) {
  const auto it = kept_.find(pid);
  if (it == kept_.end()) return;
  for (const int fd : it->second)
    if (fd >= 0) {
      ::close(fd);
      --open_;
    }
  kept_.erase(it);
}

}  // namespace eaglet::monitor
