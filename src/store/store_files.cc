#include "store/store_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/files.h"

namespace eaglet {
namespace {

/// The number in "000042<suffix>", when the name is one of ours.
std::optional<std::uint64_t> shard_number(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return std::nullopt;
  name.remove_suffix(suffix.size());
  if (name.size() < 6 || name.size() > 18 || name.find_first_not_of("0123456789") != name.npos)
    return std::nullopt;
  return std::stoull(std::string(name));
}

}  // namespace

Result<StoreFiles> list_store(const std::string& directory) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(directory));
  StoreFiles files;
  for (const std::string& name : names) {
    if (const auto number = shard_number(name, ".shard")) files.finished.push_back(*number);
    if (const auto number = shard_number(name, ".shard.tmp")) files.unfinished.push_back(*number);
  }
  std::sort(files.finished.begin(), files.finished.end());
  std::sort(files.unfinished.begin(), files.unfinished.end());
  return files;
}

std::string shard_path(const std::string& directory, std::uint64_t number) {
  return fmt::format("{}/{:06}.shard", directory, number);
}

}  // namespace eaglet
