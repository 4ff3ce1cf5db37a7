#include "monitor/shm_leftovers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

bool is_trainers(const std::string& name) {
  return starts_with(name, "torch_") || starts_with(name, "nccl-") || starts_with(name, "sem.");
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
    const std::string maps = reader.map_table(pid);
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
