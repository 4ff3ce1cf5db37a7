#include "monitor/shm_leftovers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostMapsBytes = std::size_t{64} << 20;

bool is_trainers(const std::string& name) {
  return starts_with(name, "torch_") || starts_with(name, "nccl-") || starts_with(name, "sem.");
}

/// All of a process's map table; empty when it may not be read, or is longer than any sensible one.
std::string maps_of(const ProcReader& reader, std::int64_t pid) {
  std::string text;
  const int fd = ::open(fmt::format("{}/{}/maps", reader.roots().proc, pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  std::string block(1 << 16, '\0');
  for (ssize_t got = 0; (got = ::read(fd, block.data(), block.size())) > 0 && text.size() <= kMostMapsBytes;)
    text.append(block, 0, static_cast<std::size_t>(got));
  ::close(fd);
  return text.size() <= kMostMapsBytes ? text : std::string();
}

bool of_this_user(const std::string& path, double* bytes) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || info.st_uid != ::getuid()) return false;
  if (bytes != nullptr) *bytes = static_cast<double>(info.st_size);
  return true;
}

}  // namespace

std::vector<ShmLeftover> shm_leftovers(const ProcReader& reader) {
  std::vector<ShmLeftover> left;
  const auto names = list_directory(reader.roots().shm);
  if (!names.ok()) return left;
  for (const std::string& name : *names) {
    ShmLeftover segment;
    segment.path = reader.roots().shm + "/" + name;
    if (is_trainers(name) && of_this_user(segment.path, &segment.bytes)) left.push_back(segment);
  }
  for (const std::int64_t pid : reader.all_pids()) {
    if (left.empty()) break;
    const auto process = reader.basics(pid);
    const bool kernel_or_gone = !process || process->state == 'Z' || process->rss_bytes == 0;
    if (kernel_or_gone || !of_this_user(fmt::format("{}/{}", reader.roots().proc, pid), nullptr)) continue;
    const std::string maps = maps_of(reader, pid);
    if (maps.empty() && reader.basics(pid)) return {};
    const auto files = reader.open_files(pid);
    std::erase_if(left, [&](const ShmLeftover& segment) {
      return contains(maps, segment.path) || std::any_of(files.begin(), files.end(), [&](const auto& file) {
               return file.path == segment.path;
             });
    });
  }
  return left;
}

}  // namespace eaglet::monitor
