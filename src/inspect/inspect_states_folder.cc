#include <fmt/format.h>

#include <algorithm>

#include "inspect/inspectors.h"

namespace eaglet {
namespace {

bool may_hold_states(const std::string& name) {
  for (const char* ending : {".safetensors", ".pt", ".ckpt", ".ckpt.gz"})
    if (name.ends_with(ending)) return true;
  return false;
}

/// Relative to the folder; SpecForge keeps its files in folders rows_0-2000, rows_2000-4000, ...
Result<std::vector<std::string>> state_files(const std::string& folder) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(folder));
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (may_hold_states(name)) files.push_back(name);
    if (!name.starts_with("rows_") || !is_directory(folder + "/" + name)) continue;
    EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> inside, list_directory(folder + "/" + name));
    for (const std::string& file : inside)
      if (may_hold_states(file)) files.push_back(name + "/" + file);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<std::optional<Inspection>> inspect_foreign_states(const InspectOptions& options, Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> files, state_files(options.path));
  if (files.empty()) return std::optional<Inspection>();
  Inspection inspection = begin_inspection("folder of state files", options.path);
  std::uint64_t bytes = 0;
  for (const std::string& file : files) {
    EAGLET_ASSIGN_OR_RETURN(const std::uint64_t one, file_bytes(options.path + "/" + file));
    bytes += one;
  }
  inspection.facts["files"] = files.size();
  inspection.facts["bytes"] = bytes;
  inspection.facts["first_file"] = files.front();
  InspectOptions first = options;
  first.path = options.path + "/" + files.front();
  EAGLET_ASSIGN_OR_RETURN(const Inspection inside, files.front().ends_with(".safetensors")
                                                       ? inspect_safetensors(first, progress)
                                                       : inspect_torch(first, progress));
  for (const auto& [key, value] : inside.facts.items())
    if (key == "holds" || key == "values" || key == "tensors") inspection.facts[key] = value;
  for (const std::string& problem : inside.problems)
    inspection.problems.push_back(files.front() + ": " + problem);
  inspection.doubts = inside.doubts;
  inspection.facts["look_at_all"] =
      "eaglet extract --from LAYOUT " + options.path + " --conversations FILE --model TARGET --check";
  return std::optional<Inspection>(std::move(inspection));
}

}  // namespace eaglet
