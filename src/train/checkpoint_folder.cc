#include "train/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/files.h"
#include "base/hash.h"
#include "formats/json.h"

namespace eaglet {
namespace {

constexpr const char* kPrefix = "step-";
constexpr const char* kTemporarySuffix = ".tmp";

Result<std::uint64_t> hash_file(const std::string& path) {
  constexpr std::uint64_t kWindowBytes = std::uint64_t{4}
                                         << 20;  // so little of the file is resident at a time
  EAGLET_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  Xxh64 hash;
  for (std::uint64_t at = 0; at < file.bytes(); at += kWindowBytes) {
    const std::uint64_t bytes = std::min(kWindowBytes, file.bytes() - at);
    hash.add(file.data() + at, bytes);
    file.release(at, bytes);
  }
  return hash.value();
}

// Empty when the file is as COMPLETE says.
std::string damage(const std::string& path, const std::string& name, const Json& entry) {
  const Result<std::uint64_t> bytes = file_bytes(path);
  if (!bytes.ok()) return name + " cannot be looked at: " + bytes.status().what();
  const auto expected = entry.at("bytes").get<std::uint64_t>();
  if (*bytes != expected) return fmt::format("{} has {} of {} bytes", name, *bytes, expected);
  const Result<std::uint64_t> hash = hash_file(path);
  if (!hash.ok()) return name + " cannot be read: " + hash.status().what();
  if (hex64(*hash) != entry.at("xxh64").get<std::string>())
    return name + " has another checksum than when it was saved";
  return {};
}

void judge_entry(const std::string& directory, const Json& entry, FolderCheck* check) {
  const auto name = entry.at("name").get<std::string>();
  if (name.find('/') != std::string::npos) throw std::invalid_argument("a path instead of a name");
  const std::string path = directory + "/" + name;
  const bool optional = name == kOptimizerFile || name == kTrainerStateFile;
  const bool absent = !path_exists(path);
  const std::string wrong = absent ? name + " is missing" : damage(path, name, entry);
  if (wrong.empty()) {
    check->optimizer |= name == kOptimizerFile;
    check->trainer_state |= name == kTrainerStateFile;
    return;
  }
  check->whole = false;
  if (!(optional && absent)) check->usable = false;
  check->reason += (check->reason.empty() ? "" : "; ") + wrong;
}

// A folder being written, or one that a kill kept from being removed after its replacement.
bool is_unfinished(const std::string& name) {
  const std::string_view suffix = kTemporarySuffix;
  if (const std::size_t dot = name.find(".replaced-"); dot != std::string::npos)
    return checkpoint_step(name.substr(0, dot)).has_value();
  if (name.size() <= suffix.size() || !name.ends_with(suffix)) return false;
  return checkpoint_step(name.substr(0, name.size() - suffix.size())).has_value();
}

// A whole folder of the same name is the same step saved again and is replaced; a broken one is kept under
// another name.
Status put_in_place(const std::string& checkpoints, const std::string& name, const std::string& temporary,
                    const std::function<void(const std::string&)>& note) {
  const std::string final_path = checkpoints + "/" + name;
  std::string replaced;
  if (path_exists(final_path)) {
    const bool whole = check_folder(final_path).whole;
    EAGLET_ASSIGN_OR_RETURN(const std::string aside,
                            set_aside(checkpoints, name, whole ? "replaced" : "broken"));
    if (whole)
      replaced = checkpoints + "/" + aside;
    else
      note(name + " was there and not whole: it is now " + aside);
  }
  EAGLET_RETURN_IF_ERROR(rename_synced(temporary, final_path));
  return replaced.empty() ? Status() : remove_all(replaced);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:06d}", kPrefix, step);
}

std::optional<std::int64_t> checkpoint_step(const std::string& name) {
  const std::string_view prefix = kPrefix;
  if (name.size() <= prefix.size() || name.compare(0, prefix.size(), prefix) != 0) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + prefix.size(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) return std::nullopt;
  return step;
}

Status seal_folder(const std::string& directory) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(directory));
  Json files = Json::array();
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(path));
    EAGLET_ASSIGN_OR_RETURN(const std::uint64_t hash, hash_file(path));
    files.push_back({{"name", name}, {"bytes", bytes}, {"xxh64", hex64(hash)}});
  }
  Json complete;
  complete["schema"] = 1;
  complete["files"] = std::move(files);
  return write_json_file(directory + "/" + kCompleteFile, complete);
}

FolderCheck check_folder(const std::string& directory) {
  FolderCheck check;
  const Result<Json> complete = read_json_file(directory + "/" + kCompleteFile);
  if (!complete.ok()) {
    check.reason = complete.status().code() == StatusCode::kNotFound
                       ? "it has no COMPLETE file: it was never finished"
                       : "its COMPLETE file cannot be read: " + complete.status().what();
    return check;
  }
  check.whole = check.usable = true;
  try {
    if (complete->at("schema").get<int>() != 1 || complete->at("files").empty())
      throw std::invalid_argument("schema");
    for (const Json& entry : complete->at("files")) judge_entry(directory, entry, &check);
  } catch (const std::exception&) {
    check = FolderCheck{};
    check.reason = "its COMPLETE file is not one of ours";
    return check;
  }
  if (check.whole && !(check.optimizer && check.trainer_state)) {
    check.whole = false;
    check.reason = check.optimizer ? "it has no trainer state" : "it has no optimizer state";
  }
  return check;
}

Result<std::string> set_aside(const std::string& checkpoints, const std::string& name,
                              const std::string& why) {
  for (int n = 1;; ++n) {
    const std::string aside = fmt::format("{}.{}-{}", name, why, n);
    if (path_exists(checkpoints + "/" + aside)) continue;
    EAGLET_RETURN_IF_ERROR(rename_synced(checkpoints + "/" + name, checkpoints + "/" + aside));
    return aside;
  }
}

Status write_folder(const std::string& checkpoints, const std::string& name,
                    const std::function<Status(const std::string& directory)>& fill,
                    const std::function<void(const std::string&)>& note) {
  const std::string final_path = checkpoints + "/" + name, temporary = final_path + kTemporarySuffix;
  EAGLET_RETURN_IF_ERROR(remove_all(temporary));
  Status status = make_directories(temporary);
  if (status.ok()) status = fill(temporary);
  if (status.ok()) status = seal_folder(temporary);
  if (status.ok()) status = put_in_place(checkpoints, name, temporary, note);
  if (!status.ok()) (void)remove_all(temporary);
  return status;
}

Status remove_unfinished(const std::string& checkpoints) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(checkpoints));
  for (const std::string& name : names)
    if (is_unfinished(name)) EAGLET_RETURN_IF_ERROR(remove_all(checkpoints + "/" + name));
  return {};
}

Result<std::vector<std::string>> checkpoint_names(const std::string& checkpoints) {
  std::vector<std::string> names;
  if (!is_directory(checkpoints)) return names;
  EAGLET_ASSIGN_OR_RETURN(names, list_directory(checkpoints));
  std::erase_if(names, [](const std::string& name) { return !checkpoint_step(name); });
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return checkpoint_step(a) < checkpoint_step(b);
  });
  return names;
}

Result<FoundCheckpoint> find_named(const std::string& checkpoints, const std::string& name_or_path) {
  std::filesystem::path path =
      std::filesystem::path(checkpoints) / std::filesystem::path(name_or_path).filename();
  std::error_code error;
  if (std::filesystem::is_symlink(path, error))
    path.replace_filename(std::filesystem::read_symlink(path, error).filename());
  const std::string name = path.filename().string();
  const auto step = checkpoint_step(name);
  if (!step || !is_directory(path.string()))
    return Status(StatusCode::kNotFound, "there is no checkpoint " + name_or_path, checkpoints,
                  "give the name of one of its folders, for example step-000200");
  return FoundCheckpoint{*step, name, path.string(), check_folder(path.string())};
}

Result<CheckpointSearch> find_newest(const std::string& checkpoints) {
  CheckpointSearch search;
  if (!is_directory(checkpoints)) return search;
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> all, list_directory(checkpoints));
  for (const std::string& name : all) {
    if (is_unfinished(name)) search.unfinished.push_back(name);
  }
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::string> names, checkpoint_names(checkpoints));
  std::reverse(names.begin(), names.end());
  for (const std::string& name : names) {
    FoundCheckpoint found{*checkpoint_step(name), name, checkpoints + "/" + name, {}};
    found.check = check_folder(found.path);
    if (found.check.usable) {
      search.newest = std::move(found);
      return search;
    }
    search.passed_over.push_back(std::move(found));
  }
  return search;
}

}  // namespace eaglet
