#include "monitor/output_files.h"

#include <sys/stat.h>

#include <filesystem>

#include "formats/json.h"
#include "monitor/activity.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostFiles = 4000;
constexpr int kLevels = 3;

/// speculators names its checkpoints by epochs ("0", "1", ...), and what step that was stands in a file.
std::int64_t step_of_epoch(const std::string& folder) {
  const std::string name = folder.substr(folder.rfind('/') + 1);
  if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) return -1;
  const auto state = read_json_file(folder + "/training_state.json");
  if (!state.ok() || !state->is_object()) return -1;
  const Json step = state->value("global_step", Json(nullptr));
  return step.is_number_integer() && step.get<double>() >= 0 && step.get<double>() < 1e15
             ? step.get<std::int64_t>()
             : -1;
}

void list_files(const std::string& root, int depth, std::vector<FileView>* files) {
  std::error_code error;
  const std::int64_t step = step_of_epoch(root);
  for (std::filesystem::directory_iterator
           it(root, std::filesystem::directory_options::skip_permission_denied, error),
       end;
       !error && it != end && files->size() < kMostFiles; it.increment(error)) {
    std::error_code ignored;
    if (it->is_symlink(ignored)) continue;
    if (it->is_directory(ignored)) {
      if (depth > 0) list_files(it->path().string(), depth - 1, files);
      continue;
    }
    const std::string path = it->path().string();
    if (step < 0 && checkpoint_of_path(path).step < 0 && !is_event_file(path)) continue;
    struct stat info = {};
    if (::stat(path.c_str(), &info) != 0) continue;
    files->push_back(
        {static_cast<double>(info.st_mtim.tv_sec), static_cast<double>(info.st_size), path, step});
  }
}

}  // namespace

std::vector<FileView> output_files(const std::string& directory) {
  std::vector<FileView> files;
  list_files(directory, kLevels, &files);
  return files;
}

}  // namespace eaglet::monitor
