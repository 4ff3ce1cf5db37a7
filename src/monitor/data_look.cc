#include "monitor/data_look.h"

#include "base/files.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "monitor/activity.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::uint64_t kMostMapBytes = std::uint64_t{64} << 20;
constexpr const char* kDataKeys[] = {"hidden_states_path", "hidden_states_dir", "data_path",
                                     "train_data_path", "data_dir"};

void take_maps(const std::vector<std::int64_t>& d2t, const std::vector<std::int64_t>& t2d,
               const std::string& path, DataSeen* data) {
  data->maps_path = path;
  data->draft_ids = static_cast<std::int64_t>(d2t.size());
  data->target_ids = 0;
  for (const std::int64_t in : t2d) data->target_ids += in != 0;
  data->maps_agree = true;
  std::int64_t before = -1;
  for (std::size_t draft = 0; draft < d2t.size(); ++draft) {
    const std::int64_t target = static_cast<std::int64_t>(draft) + d2t[draft];
    const bool inside = target >= 0 && target < static_cast<std::int64_t>(t2d.size());
    if (target <= before || !inside || t2d[static_cast<std::size_t>(target)] == 0) data->maps_agree = false;
    before = target;
  }
}

void maps_of_checkpoint(const std::vector<FileView>& files, DataSeen* data) {
  const FileView* newest = nullptr;
  std::int64_t step = -1;
  for (const FileView& file : files) {
    const std::int64_t at = checkpoint_of_file(file).step;
    if (!file.path.ends_with("/model.safetensors") || at < step) continue;
    newest = &file;
    step = at;
  }
  if (newest == nullptr || newest->path == data->looked_at) return;
  data->looked_at = newest->path;
  const auto opened = SafetensorsFile::open(newest->path);
  if (!opened.ok()) return;
  for (const char* name : {"d2t", "t2d"})
    if (opened->find(name) == nullptr || opened->find(name)->bytes > kMostMapBytes) return;
  const auto d2t = opened->read_i64("d2t"), t2d = opened->read_i64("t2d");
  if (d2t.ok() && t2d.ok()) take_maps(*d2t, *t2d, newest->path, data);
}

void maps_of_files(const RunConfig& config, DataSeen* data) {
  std::vector<std::string> places;
  if (const auto named = config.text("d2t_path"); named && named->ends_with("/d2t.npy"))
    places.push_back(named->substr(0, named->size() - 8));
  for (const char* key : kDataKeys)
    if (const auto place = config.text(key)) places.push_back(*place);
  for (const std::string& place : places) {
    const auto bytes = file_bytes(place + "/t2d.npy");
    if (!bytes.ok() || *bytes > kMostMapBytes) continue;
    const auto d2t = read_npy_integers(place + "/d2t.npy"), t2d = read_npy_integers(place + "/t2d.npy");
    if (d2t.ok() && t2d.ok()) return take_maps(*d2t, *t2d, place, data);
  }
}

void states(const RunConfig& config, const std::string& open_folder, DataSeen* data) {
  std::vector<std::string> places;
  for (const char* key : kDataKeys)
    if (const auto place = config.text(key)) places.push_back(*place);
  if (!open_folder.empty()) places.push_back(open_folder);
  for (const std::string& place : places) {
    for (const std::string& folder : {place, place + "/hidden_states"}) {
      const auto names = list_directory(folder);
      if (!names.ok()) continue;
      for (const std::string& name : *names) {
        if (!name.ends_with(".safetensors")) continue;
        const auto opened = SafetensorsFile::open(folder + "/" + name);
        const SafetensorsEntry* entry = opened.ok() ? opened->find("hidden_states") : nullptr;
        if (entry != nullptr && entry->shape.size() == 3) {
          data->states_path = folder + "/" + name;
          data->layers = entry->shape[1];
          data->hidden = entry->shape[2];
          data->rows = entry->shape[0];
          for (const char* ids : {"token_ids", "input_ids"})
            if (const SafetensorsEntry* found = opened->find(ids);
                found != nullptr && found->shape.size() == 1)
              data->tokens = found->shape[0];
        }
        return;  // one file tells, or none does
      }
    }
  }
}

}  // namespace

void look_at_data(const RunConfig& config, const std::vector<FileView>& files, const std::string& open_folder,
                  DataSeen* data) {
  maps_of_checkpoint(files, data);
  const bool nowhere = config.empty() && open_folder.empty();
  if (nowhere || (data->looked && data->looked_folder == open_folder)) return;
  data->looked = true;  // a directory of many files is listed once
  data->looked_folder = open_folder;
  if (data->states_path.empty()) states(config, open_folder, data);
  if (data->maps_path.empty()) maps_of_files(config, data);
}

std::string data_folder(const RunConfig& config, const std::string& open_folder) {
  if (!open_folder.empty()) return open_folder;
  for (const char* key : kDataKeys)
    if (const auto place = config.text(key); place && starts_with(*place, "/") && path_exists(*place))
      return *place;
  return {};
}

}  // namespace eaglet::monitor
