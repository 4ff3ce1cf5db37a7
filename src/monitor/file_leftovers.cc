#include "monitor/file_leftovers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/files.h"
#include "formats/safetensors.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr double kSettledSeconds = 60;
constexpr std::size_t kMostLeft = 20000;
constexpr int kDepth = 4;

struct Entry {
  std::string path, name;
  double bytes = 0, mtime = 0;
  std::string inode;  // "8:1:1234", as /proc/locks has it
};

/// Files by the folder they lie in.
using Folders = std::map<std::string, std::vector<Entry>>;

void list(const std::string& folder, int depth, std::size_t* count, Folders* folders) {
  std::error_code error;
  const auto options = std::filesystem::directory_options::skip_permission_denied;
  for (std::filesystem::directory_iterator it(folder, options, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_symlink(ignored) || *count >= kMostLeft) continue;
    const std::string path = it->path().string();
    if (it->is_directory(ignored)) {
      if (depth > 0) list(path, depth - 1, count, folders);
      continue;
    }
    struct stat info = {};
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    ++*count;
    (*folders)[folder].push_back(
        {path, it->path().filename().string(), static_cast<double>(info.st_size),
         static_cast<double>(info.st_mtime),
         fmt::format("{:02x}:{:02x}:{}", major(info.st_dev), minor(info.st_dev), info.st_ino)});
  }
}

/// What somebody has open (as far as we may see) or has locked.
class InUse {
 public:
  explicit InUse(const ProcReader& reader) {
    for (const std::int64_t pid : reader.all_pids())
      for (const auto& file : reader.open_files(pid)) open_.insert(file.path);
    // "1: FLOCK  ADVISORY  WRITE 708 00:1a:4321 0 EOF"
    const std::string table = read_small(reader.roots().proc + "/locks");
    for (const std::string_view line : split(table, '\n'))
      for (const std::string_view part : words(line))
        if (std::count(part.begin(), part.end(), ':') == 2) locked_.emplace(part);
  }
  bool any(const Entry& entry) const {
    return open_.count(entry.path) != 0 || locked_.count(entry.inode) != 0;
  }

 private:
  std::set<std::string> open_, locked_;
};

bool is_lock(const std::string& name) {
  return name == "lock" ||
         (name.ends_with(".lock") && name.size() > 5);  // ".lock" alone is held by flock only
}
bool is_temporary(const std::string& name) {
  return name.ends_with(".tmp") || name.find(".tmp.") != std::string::npos || name.ends_with(".partial") ||
         name.ends_with(".incomplete");
}
bool is_weights(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".bin") || name.ends_with(".pt") ||
         name.ends_with(".pth") || name.ends_with(".ckpt") || name.ends_with(".distcp");
}

/// The same shape of name for all checkpoints of a run: "checkpoint-400" -> "checkpoint-#".
std::string without_digits(const std::string& name) {
  std::string out;
  for (const char c : name)
    if (!is_digit(c))
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  return out;
}

/// Why the files of a checkpoint's folder are no whole one; `usual`: names that most of its siblings have.
std::string half_done(const std::vector<Entry>& files, const std::set<std::string>& usual) {
  std::set<std::string> names;
  for (const Entry& entry : files) {
    names.insert(entry.name);
    if (!is_weights(entry.name)) continue;
    if (entry.bytes == 0) return entry.name + " is empty";
    if (entry.name.ends_with(".safetensors") && !SafetensorsFile::open(entry.path).ok())
      return entry.name + " is cut off";
  }
  for (const std::string& name : usual)
    if (names.count(name) == 0) return "it has no " + name + ", which the others have";
  return {};
}

/// What more than half of the folders with that shape of name hold, once there are three of them.
std::map<std::string, std::set<std::string>> usual_files(const Folders& folders) {
  std::map<std::string, std::map<std::string, std::size_t>> seen;
  std::map<std::string, std::size_t> count;
  const auto shape_of = [](const std::string& folder) {
    return without_digits(std::filesystem::path(folder).filename().string());
  };
  for (const auto& [folder, files] : folders) {
    if (shape_of(folder).find('#') == std::string::npos) continue;
    ++count[shape_of(folder)];
    for (const Entry& entry : files) ++seen[shape_of(folder)][entry.name];
  }
  std::map<std::string, std::set<std::string>> usual;
  for (const auto& [shape, names] : seen)
    for (const auto& [name, times] : names)
      if (count[shape] >= 3 && 2 * times > count[shape]) usual[shape].insert(name);
  return usual;
}

FileLeftover leftover(const Entry& entry, std::string why, double now) {
  return {entry.path, std::move(why), entry.bytes, now - entry.mtime};
}

void add_half_checkpoints(const Folders& folders, const InUse& in_use, double now,
                          std::vector<FileLeftover>* found) {
  const auto usual = usual_files(folders);
  for (const auto& [folder, files] : folders) {
    const bool weights =
        std::any_of(files.begin(), files.end(), [](const Entry& e) { return is_weights(e.name); });
    const bool busy = std::any_of(files.begin(), files.end(), [&](const Entry& e) {
      return in_use.any(e) || now - e.mtime < kSettledSeconds;
    });
    if (busy) continue;
    const auto others = usual.find(without_digits(std::filesystem::path(folder).filename().string()));
    if (!weights && others == usual.end()) continue;
    const std::string why =
        half_done(files, others == usual.end() ? std::set<std::string>() : others->second);
    if (why.empty()) continue;
    FileLeftover half{folder, "half a checkpoint: " + why, 0, now};
    for (const Entry& entry : files) {
      half.bytes += entry.bytes;
      half.age_seconds = std::min(half.age_seconds, now - entry.mtime);
    }
    found->push_back(std::move(half));
  }
}

std::vector<FileLeftover> stale_files(const Folders& folders, const InUse& in_use, double now) {
  std::vector<FileLeftover> found;
  for (const auto& [folder, files] : folders)
    for (const Entry& entry : files) {
      if (now - entry.mtime < kSettledSeconds || in_use.any(entry)) continue;
      if (is_lock(entry.name))
        found.push_back(
            leftover(entry, "a lock that nobody holds: whoever takes the mere file for one waits", now));
      else if (is_temporary(entry.name))
        found.push_back(leftover(entry, "half written, and nobody writes it", now));
    }
  return found;
}

}  // namespace

Result<std::vector<FileLeftover>> file_leftovers(const std::string& directory, const ProcReader& reader) {
  if (!is_directory(directory))
    return Status(StatusCode::kNotFound, "no such directory", directory, "give the directory of a run");
  std::error_code error;
  const auto real = std::filesystem::canonical(directory, error);
  Folders folders;
  std::size_t count = 0;
  list(error ? directory : real.string(), kDepth, &count, &folders);
  const InUse in_use(reader);
  const double now = wall_seconds();
  std::vector<FileLeftover> found = stale_files(folders, in_use, now);
  add_half_checkpoints(folders, in_use, now, &found);
  return found;
}

std::vector<FileLeftover> stale_build_locks(const ProcReader& reader) {
  std::string root;
  if (const char* named = std::getenv("TORCH_EXTENSIONS_DIR"); named != nullptr)
    root = named;
  else if (const char* home = std::getenv("HOME"); home != nullptr)
    root = std::string(home) + "/.cache/torch_extensions";
  Folders folders;
  std::size_t count = 0;
  if (!root.empty()) list(root, 2, &count, &folders);
  for (auto& [folder, files] : folders)
    std::erase_if(files, [](const Entry& entry) { return entry.name != "lock"; });
  std::erase_if(folders, [](const auto& folder) { return folder.second.empty(); });
  return folders.empty() ? std::vector<FileLeftover>() : stale_files(folders, InUse(reader), wall_seconds());
}

}  // namespace eaglet::monitor
