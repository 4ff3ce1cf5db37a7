#include "formats/safetensors_folder.h"

#include "formats/json.h"

namespace eaglet {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

Status bad_index(const std::string& path, const std::string& what) {
  return Status(StatusCode::kDataLoss, what, path, "fetch this model again: its index is damaged");
}

}  // namespace

Result<SafetensorsFolder> SafetensorsFolder::open(const std::string& directory) {
  SafetensorsFolder folder;
  folder.directory_ = directory;
  const std::string index_path = directory + "/" + kIndex;
  if (path_exists(index_path)) {
    EAGLET_ASSIGN_OR_RETURN(const Json index, read_json_file(index_path));
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
      return bad_index(index_path, "there is no weight_map");
    for (const auto& [name, file] : index["weight_map"].items()) {
      if (!file.is_string()) return bad_index(index_path, "the file of '" + name + "' is no text");
      const auto& text = file.get_ref<const std::string&>();
      if (text.empty() || text.find('/') != text.npos || text.front() == '.')
        return bad_index(index_path, "the file of '" + name + "' is '" + text + "', not a plain name");
      folder.file_of_[name] = text;
    }
    if (folder.file_of_.empty()) return bad_index(index_path, "it names no tensor");
    return folder;
  }
  if (!path_exists(directory + "/" + kSingle))
    return Status(StatusCode::kNotFound, std::string("neither ") + kSingle + " nor " + kIndex, directory,
                  "give a folder with safetensors weights");
  EAGLET_ASSIGN_OR_RETURN(const SafetensorsFile* single, folder.file(kSingle));
  for (const SafetensorsEntry& entry : single->entries()) folder.file_of_[entry.name] = kSingle;
  return folder;
}

Result<const SafetensorsFile*> SafetensorsFolder::file(const std::string& name) {
  auto& slot = files_[name];
  if (!slot) {
    EAGLET_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(directory_ + "/" + name));
    slot = std::make_unique<SafetensorsFile>(std::move(opened));
  }
  return static_cast<const SafetensorsFile*>(slot.get());
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

Result<SafetensorsFolder::Tensor> SafetensorsFolder::find(const std::string& name) {
  const auto it = file_of_.find(name);
  if (it == file_of_.end())
    return Status(StatusCode::kNotFound, "there is no tensor '" + name + "'", directory_);
  EAGLET_ASSIGN_OR_RETURN(const SafetensorsFile* from, file(it->second));
  const SafetensorsEntry* entry = from->find(name);
  if (entry == nullptr)
    return bad_index(directory_ + "/" + it->second, "the index says that '" + name + "' is here; it is not");
  return Tensor{from, entry};
}

}  // namespace eaglet
