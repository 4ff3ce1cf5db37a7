#include "extract/nemo_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "formats/json.h"
#include "formats/json_field.h"
#include "formats/safetensors.h"

namespace eaglet {
namespace {

constexpr double kLargestMisfit = 0.25;  // nats; bf16 probabilities of the right target leave about 0.002
constexpr std::int64_t kTeacherRows = 64;

Status not_a_cache(const std::string& what) {
  return Status(StatusCode::kDataLoss, what, "", "is this the layout that --from names?");
}

Result<std::vector<std::int32_t>> number_list(const Json& manifest, const char* name) {
  std::vector<std::int32_t> numbers;
  const Json* list = json_field(manifest, name);
  if (list == nullptr) return numbers;
  if (!list->is_array()) return not_a_cache(fmt::format("manifest.json: {} is no list", name));
  for (const Json& number : *list) {
    if (!number.is_number_integer() || number.get<std::int64_t>() < 0 ||
        number.get<std::int64_t>() > INT32_MAX)
      return not_a_cache(fmt::format("manifest.json: {} holds {}", name, json_shown(number)));
    numbers.push_back(number.get<std::int32_t>());
  }
  return numbers;
}

/// One row of a stacked tensor: where it begins, and its elements.
struct Stacked {
  const SafetensorsEntry* entry = nullptr;
  const std::byte* data = nullptr;
};
Result<Stacked> row_of(const SafetensorsFile& file, const char* name, std::size_t dimensions,
                       std::int64_t row) {
  const SafetensorsEntry* entry = file.find(name);
  if (entry == nullptr) return not_a_cache(fmt::format("there is no {}", name));
  if (entry->shape.size() != dimensions || entry->shape[0] < 1 || row < 0 || row >= entry->shape[0])
    return not_a_cache(
        fmt::format("{} is [{}], which has no sample {}", name, fmt::join(entry->shape, ", "), row));
  const auto bytes =
      static_cast<std::int64_t>(dtype_bytes(entry->dtype)) * (entry->elements() / entry->shape[0]);
  return Stacked{entry, file.data(*entry) + row * bytes};
}

Result<std::vector<std::int64_t>> numbers_of(const SafetensorsFile& file, const char* name,
                                             std::int64_t row) {
  EAGLET_ASSIGN_OR_RETURN(const Stacked stacked, row_of(file, name, 2, row));
  if (stacked.entry->dtype != Dtype::kI64) return not_a_cache(fmt::format("{} is no int64", name));
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(stacked.entry->shape[1]));
  std::memcpy(numbers.data(), stacked.data, numbers.size() * sizeof(std::int64_t));
  return numbers;
}

}  // namespace

Result<NemoManifest> read_nemo_manifest(const std::string& directory) {
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(directory + "/manifest.json"));
  NemoManifest manifest;
  const Json *version = json_field(json, "format_version"), *topk = json_field(json, "target_probs_topk");
  if (version == nullptr || *version != Json(2))
    return Status(StatusCode::kConfig,
                  fmt::format("a cache of format_version {}; 2 is known",
                              version == nullptr ? "none" : json_shown(*version)),
                  directory + "/manifest.json", "extract the states again from the conversations");
  if (topk != nullptr && *topk != Json(0))
    return Status(
        StatusCode::kConfig,
        fmt::format("the cache holds only the {} largest of the teacher's probabilities", json_shown(*topk)),
        directory + "/manifest.json",
        "the last state cannot be rebuilt from them: extract the states again from the conversations");
  EAGLET_ASSIGN_OR_RETURN(manifest.selected_token_ids, number_list(json, "selected_token_ids"));
  EAGLET_ASSIGN_OR_RETURN(manifest.output_layers, number_list(json, "aux_layer_ids"));
  if (manifest.selected_token_ids.empty()) return not_a_cache("manifest.json lists no selected_token_ids");
  return manifest;
}

Result<std::vector<std::string>> list_nemo_samples(const std::string& directory) {
  EAGLET_RETURN_IF_ERROR(read_nemo_manifest(directory).status());
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(directory));
  std::vector<std::string> samples;
  for (const std::string& name : names) {
    if (!name.starts_with("shard-") || !name.ends_with(".safetensors")) continue;
    const std::string path = directory + "/" + name;
    const auto file = SafetensorsFile::open(path);
    const SafetensorsEntry* ids = file.ok() ? file->find("input_ids") : nullptr;
    // A damaged shard counts as one sample, so that it is named.
    const std::int64_t count = ids == nullptr || ids->shape.empty() ? 1 : ids->shape[0];
    for (std::int64_t row = 0; row < count; ++row) samples.push_back(fmt::format("{}#{}", path, row));
  }
  if (samples.empty())
    return Status(StatusCode::kNotFound, "there is no shard of a NeMo cache in this folder", directory,
                  "it holds manifest.json and shard-000000.safetensors");
  return samples;
}

std::string file_of_sample(const std::string& path) {
  const std::size_t mark = path.rfind(".safetensors#");
  return mark == path.npos ? path : path.substr(0, mark + 12);
}

Result<ForeignStates> open_nemo_sample(const std::string& sample) {
  const std::string path = file_of_sample(sample);
  std::int64_t row = 0;
  if (path != sample) row = std::atoll(sample.c_str() + path.size() + 1);
  EAGLET_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(path));
  const auto file = std::make_shared<SafetensorsFile>(std::move(opened));
  EAGLET_ASSIGN_OR_RETURN(const auto ids, numbers_of(*file, "input_ids", row));
  EAGLET_ASSIGN_OR_RETURN(const auto mask, numbers_of(*file, "loss_mask", row));
  EAGLET_ASSIGN_OR_RETURN(const auto real, numbers_of(*file, "attention_mask", row));
  EAGLET_ASSIGN_OR_RETURN(const Stacked aux, row_of(*file, "aux_hidden_states", 3, row));
  EAGLET_ASSIGN_OR_RETURN(const Stacked teacher, row_of(*file, "target_probs", 3, row));
  const auto length = static_cast<std::int64_t>(ids.size());
  const std::int64_t slots = 3, width = aux.entry->shape[2] / slots;
  ForeignStates states;
  states.rows = std::find(real.begin(), real.end(), 0) - real.begin();
  if (std::count(real.begin(), real.end(), 1) != states.rows || states.rows < 2)
    return not_a_cache("attention_mask is not ones and then padding");
  if (aux.entry->shape[1] != length || teacher.entry->shape[1] != length || mask.size() != ids.size() ||
      real.size() != ids.size() || aux.entry->shape[2] != slots * width || width < 1)
    return not_a_cache("the sample's parts have different lengths");
  for (const Stacked& part : {aux, teacher})
    if (part.entry->dtype != Dtype::kBF16 && part.entry->dtype != Dtype::kF16 &&
        part.entry->dtype != Dtype::kF32)
      return not_a_cache(fmt::format("{} is of type {}", part.entry->name, dtype_name(part.entry->dtype)));
  // Place t holds id and mask of token t + 1; the first token's id is gone.
  states.first_token_unknown = true;
  states.input_ids.push_back(0);
  states.loss_mask.push_back(0);
  for (std::int64_t t = 0; t + 1 < states.rows; ++t) {
    const std::int64_t id = ids[static_cast<std::size_t>(t)], bit = mask[static_cast<std::size_t>(t)];
    if (id < 0 || id > INT32_MAX || bit < 0 || bit > 1)
      return not_a_cache(fmt::format("token {} has id {} and mask {}", t + 1, id, bit));
    states.input_ids.push_back(static_cast<std::int32_t>(id));
    states.loss_mask.push_back(static_cast<std::uint8_t>(bit));
  }
  states.width = width;
  const auto element = static_cast<std::int64_t>(dtype_bytes(aux.entry->dtype));
  for (std::int64_t slot = 0; slot < slots; ++slot)
    states.slots.push_back({aux.entry->dtype, aux.data + slot * width * element, slots * width * element, 0});
  states.teacher = {teacher.entry->dtype, teacher.data,
                    teacher.entry->shape[2] * static_cast<std::int64_t>(dtype_bytes(teacher.entry->dtype)),
                    0};
  states.teacher_width = teacher.entry->shape[2];
  states.conversation_id = fmt::format("{}-{}", std::filesystem::path(path).stem().string(), row);
  states.owner = file;
  return states;
}

Status rebuild_last_state(const TeacherInverse& inverse, ForeignStates* states) {
  if (states->teacher_width != inverse.ids())
    return not_a_cache(fmt::format("{} probabilities a token, the manifest selects {}", states->teacher_width,
                                   inverse.ids()));
  const std::int64_t width = states->width;
  // The first token's is not there, and no drafting step reads it: zeros.
  auto last = std::make_shared<std::vector<float>>(static_cast<std::size_t>(states->rows * width), 0.0f);
  double misfit_sum = 0;
  for (std::int64_t first = 0; first + 1 < states->rows; first += kTeacherRows) {
    const std::int64_t count = std::min(kTeacherRows, states->rows - 1 - first);
    std::vector<float> probabilities(static_cast<std::size_t>(count * inverse.ids())), solved;
    for (std::int64_t r = 0; r < count; ++r)
      convert_to_f32(states->teacher.dtype, states->teacher.data + (first + r) * states->teacher.row_bytes,
                     static_cast<std::size_t>(inverse.ids()), probabilities.data() + r * inverse.ids());
    double misfit = 0;
    EAGLET_RETURN_IF_ERROR(inverse.solve(probabilities, count, &solved, &misfit));
    misfit_sum += misfit * static_cast<double>(count);
    std::copy(solved.begin(), solved.end(), last->begin() + (first + 1) * width);
  }
  const double misfit = misfit_sum / static_cast<double>(states->rows - 1);
  if (!(misfit <= kLargestMisfit))
    return Status(
        StatusCode::kDataLoss,
        fmt::format(
            "the teacher's probabilities are not this target's: they are {:.2f} nats from any that its "
            "head can give",
            misfit));
  states->slots.push_back({Dtype::kF32, reinterpret_cast<const std::byte*>(last->data()),
                           width * static_cast<std::int64_t>(sizeof(float)), 0});
  // Both the file and the rebuilt numbers stay alive.
  struct Owners {
    std::shared_ptr<const void> file;
    std::shared_ptr<std::vector<float>> last;
  };
  states->owner = std::make_shared<Owners>(Owners{states->owner, last});
  return {};
}

}  // namespace eaglet
