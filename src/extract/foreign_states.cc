#include "extract/foreign_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/files.h"
#include "extract/nemo_states.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "tensor/float8.h"

namespace eaglet {
namespace {

namespace fs = std::filesystem;

Status unfit(const std::string& what) {
  return Status(StatusCode::kDataLoss, what, "", "is this the layout that --from names?");
}

std::string stem_of(const std::string& path) {
  std::string name = fs::path(path).filename().string();
  for (const char* end : {".gz", ".safetensors", ".ckpt", ".pt"})
    if (name.ends_with(end)) name.resize(name.size() - std::strlen(end));
  return name;
}

/// 7 of "hs_7" or "data_7"; -1 otherwise.
std::int64_t row_in(const std::string& stem, std::string_view prefix) {
  if (!stem.starts_with(prefix)) return -1;
  const std::string digits = stem.substr(prefix.size());
  if (digits.empty() || digits.size() > 12 || digits.find_first_not_of("0123456789") != digits.npos)
    return -1;
  return std::stoll(digits);
}

bool is_float(Dtype dtype) {
  return dtype == Dtype::kBF16 || dtype == Dtype::kF16 || dtype == Dtype::kF32;
}

std::vector<std::int32_t> narrow_ids(const std::vector<std::int64_t>& ids, bool* fits) {
  std::vector<std::int32_t> narrow(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    *fits &= ids[i] >= 0 && ids[i] <= INT32_MAX;
    narrow[i] = static_cast<std::int32_t>(ids[i]);
  }
  return narrow;
}

// ---- safetensors: vLLM's connector, its fp8 form, speculators' offline files ----

Result<ForeignStates> open_safetensors_states(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(path));
  const auto file = std::make_shared<SafetensorsFile>(std::move(opened));
  ForeignStates states;
  states.all_places = file->find("boundary_states") != nullptr;
  const char* name = states.all_places ? "boundary_states" : "hidden_states";
  const SafetensorsEntry* tensor = file->find(name);
  if (tensor == nullptr || file->find("token_ids") == nullptr)
    return unfit(fmt::format("there is no {}", tensor == nullptr ? name : "token_ids"));
  if (tensor->shape.size() != 3 || tensor->shape[1] < 2 || tensor->shape[2] < 1)
    return unfit(fmt::format("{} is [{}], not [tokens, slots, width]", name, fmt::join(tensor->shape, ", ")));
  EAGLET_ASSIGN_OR_RETURN(const auto ids, file->read_i64("token_ids"));
  bool fits = true;
  states.input_ids = narrow_ids(ids, &fits);
  if (!fits) return unfit("token_ids holds something that is no token id");
  states.rows = tensor->shape[0];
  states.width = tensor->shape[2];
  const bool fp8 = tensor->dtype == Dtype::kF8E4M3;
  if (fp8) {
    const SafetensorsEntry* scales = file->find("hidden_states_scales");
    if (scales == nullptr || scales->elements() != states.rows)
      return unfit("fp8 states without one scale for each token (hidden_states_scales)");
    EAGLET_ASSIGN_OR_RETURN(states.row_scales, file->read_f32("hidden_states_scales"));
  } else if (!is_float(tensor->dtype)) {
    return unfit(fmt::format("{} is of type {}", name, dtype_name(tensor->dtype)));
  }
  const auto slot_bytes = states.width * static_cast<std::int64_t>(dtype_bytes(tensor->dtype));
  const std::uint64_t start = static_cast<std::uint64_t>(file->data(*tensor) - file->bytes_begin());
  for (std::int64_t slot = 0; slot < tensor->shape[1]; ++slot)
    states.slots.push_back({tensor->dtype, file->data(*tensor) + slot * slot_bytes,
                            slot_bytes * tensor->shape[1],
                            start + static_cast<std::uint64_t>(slot * slot_bytes)});
  states.in_place_possible = !fp8;
  states.owner = file;
  return states;
}

// ---- torch files ----

class TorchStates {
 public:
  explicit TorchStates(std::shared_ptr<TorchFile> file) : file_(std::move(file)) {}

  /// [rows, width * slots] or [1, rows, width * slots], one or several states side by side.
  Status add(const char* key, std::int64_t slots) {
    const TorchValue* value = file_->root().find(key);
    if (value == nullptr || value->kind != TorchValue::Kind::kTensor)
      return unfit(fmt::format("there is no tensor {}", key));
    return add_tensor(key, value->tensor, slots);
  }
  /// A list of [rows, width].
  Status add_list(const char* key) {
    const TorchValue* list = file_->root().find(key);
    if (list == nullptr || list->kind != TorchValue::Kind::kList || list->items.size() < 2)
      return unfit(fmt::format("there is no list {} of at least two tensors", key));
    for (const TorchValue* item : list->items) {
      if (item->kind != TorchValue::Kind::kTensor)
        return unfit(fmt::format("{} holds {}", key, kind_name(item->kind)));
      EAGLET_RETURN_IF_ERROR(add_tensor(key, item->tensor, 1));
    }
    return {};
  }
  Status add_tokens() {
    EAGLET_ASSIGN_OR_RETURN(const auto ids, integers("input_ids"));
    EAGLET_ASSIGN_OR_RETURN(const auto mask, integers("loss_mask"));
    bool fits = true;
    states.input_ids = narrow_ids(ids, &fits);
    if (!fits) return unfit("input_ids holds something that is no token id");
    if (mask.size() != ids.size())
      return unfit(fmt::format("{} token ids but {} mask entries", ids.size(), mask.size()));
    for (const std::int64_t bit : mask) {
      if (bit != 0 && bit != 1) return unfit(fmt::format("loss_mask holds {}", bit));
      states.loss_mask.push_back(static_cast<std::uint8_t>(bit));
    }
    return {};
  }
  ForeignStates finish() && {
    states.in_place_possible = file_->mapped();
    states.owner = file_;
    return std::move(states);
  }
  const TorchValue& root() const { return file_->root(); }
  ForeignStates states;

 private:
  Status add_tensor(const char* key, const TorchTensor& tensor, std::int64_t slots) {
    std::vector<std::int64_t> shape = tensor.shape;
    std::vector<std::int64_t> stride = tensor.stride;
    if (shape.size() == 3 && shape[0] == 1) {
      shape.erase(shape.begin());
      stride.erase(stride.begin());
    }
    if (shape.size() != 2 || shape[1] < 1 || shape[1] % slots != 0 || !is_float(tensor.dtype) ||
        (stride[1] != 1 && shape[1] != 1))
      return unfit(fmt::format("{} is {} [{}], not [tokens, {} x width] of a floating-point type", key,
                               dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "), slots));
    const std::int64_t width = shape[1] / slots;
    if (!states.slots.empty() && (width != states.width || shape[0] != states.rows))
      return unfit(fmt::format("{} is [{}], the states before it are {} rows of width {}", key,
                               fmt::join(tensor.shape, ", "), states.rows, states.width));
    states.rows = shape[0];
    states.width = width;
    const auto element = static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
    for (std::int64_t slot = 0; slot < slots; ++slot)
      states.slots.push_back({tensor.dtype, tensor.data + slot * width * element, stride[0] * element,
                              tensor.file_offset + static_cast<std::uint64_t>(slot * width * element)});
    return {};
  }
  Result<std::vector<std::int64_t>> integers(const char* key) {
    const TorchValue* value = file_->root().find(key);
    if (value == nullptr || value->kind != TorchValue::Kind::kTensor)
      return unfit(fmt::format("there is no tensor {}", key));
    return TorchFile::read_i64(value->tensor);
  }

  std::shared_ptr<TorchFile> file_;
};

Result<ForeignStates> open_torch_states(StatesLayout layout, const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(TorchFile opened,
                          path.ends_with(".gz") ? TorchFile::open_gzip(path) : TorchFile::open(path));
  TorchStates reader(std::make_shared<TorchFile>(std::move(opened)));
  const std::string stem = stem_of(path);
  if (layout == StatesLayout::kModelOpt) {
    EAGLET_RETURN_IF_ERROR(reader.add("aux_hidden_states", 3));
    EAGLET_RETURN_IF_ERROR(reader.add("hidden_states", 1));
    const TorchValue* id = reader.root().find("conversation_id");
    reader.states.conversation_id = id != nullptr && id->kind == TorchValue::Kind::kString ? id->text : stem;
  } else if (layout == StatesLayout::kSpecForge) {
    EAGLET_RETURN_IF_ERROR(reader.add("aux_hidden_state", 3));
    EAGLET_RETURN_IF_ERROR(reader.add("hidden_state", 1));
    reader.states.last_is_post_norm = true;
  } else if (reader.root().find("hidden_states") != nullptr) {  // speculators 0.3, 0.4
    EAGLET_RETURN_IF_ERROR(reader.add_list("hidden_states"));
  } else {  // speculators 0.2
    EAGLET_RETURN_IF_ERROR(reader.add("hidden_state", 3));
    EAGLET_RETURN_IF_ERROR(reader.add("target", 1));
    reader.states.last_is_post_norm = true;
  }
  EAGLET_RETURN_IF_ERROR(reader.add_tokens());
  reader.states.conversation_row = row_in(stem, "data_");
  return std::move(reader).finish();
}

bool is_states_file(StatesLayout layout, const std::string& name) {
  const bool safetensors = name.ends_with(".safetensors");
  switch (layout) {
    case StatesLayout::kVllm:
      return safetensors;
    case StatesLayout::kSpeculators:
      return safetensors || (name.starts_with("data_") && name.ends_with(".pt"));
    case StatesLayout::kSpecForge:
      return name.ends_with(".ckpt") || name.ends_with(".ckpt.gz");
    case StatesLayout::kModelOpt:
      return name.ends_with(".pt");
    case StatesLayout::kNemo:
      break;
  }
  return false;
}

Status list_below(StatesLayout layout, const std::string& directory, int depth,
                  std::vector<std::string>* files) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(directory));
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    if (is_directory(path)) {
      if (depth > 0) EAGLET_RETURN_IF_ERROR(list_below(layout, path, depth - 1, files));
    } else if (is_states_file(layout, name)) {
      files->push_back(path);
    }
  }
  return {};
}

}  // namespace

Result<StatesLayout> states_layout_from_name(const std::string& name) {
  if (name == "vllm") return StatesLayout::kVllm;
  if (name == "speculators") return StatesLayout::kSpeculators;
  if (name == "specforge") return StatesLayout::kSpecForge;
  if (name == "modelopt") return StatesLayout::kModelOpt;
  if (name == "nemo") return StatesLayout::kNemo;
  return Status(StatusCode::kUsage, "there is no layout '" + name + "'", "--from",
                "vllm, speculators, specforge, modelopt or nemo");
}

void ForeignStates::row_f32(std::size_t slot, std::int64_t row, float* to) const {
  const Slot& from = slots[slot];
  const std::byte* at = from.data + row * from.row_bytes;
  if (from.dtype != Dtype::kF8E4M3) {
    convert_to_f32(from.dtype, at, static_cast<std::size_t>(width), to);
    return;
  }
  const float* table = f8e4m3_table();
  const float scale = row_scales[static_cast<std::size_t>(row)];
  for (std::int64_t i = 0; i < width; ++i) to[i] = table[static_cast<std::uint8_t>(at[i])] * scale;
}

Result<std::vector<std::string>> list_foreign_states(StatesLayout layout, const std::string& directory) {
  if (!is_directory(directory))
    return Status(StatusCode::kNotFound, "there is no such folder of states", directory, "check the path");
  if (layout == StatesLayout::kNemo) return list_nemo_samples(directory);
  std::vector<std::string> files;
  EAGLET_RETURN_IF_ERROR(list_below(layout, directory, 2, &files));
  // By number where names carry one (hs_10 after hs_9), else by name.
  std::sort(files.begin(), files.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), std::string_view(a)) < std::pair(b.size(), std::string_view(b));
  });
  if (files.empty())
    return Status(StatusCode::kNotFound, "there is no file of states in this folder", directory,
                  "vLLM and speculators write .safetensors, SpecForge .ckpt, Model-Optimizer .pt");
  return files;
}

Result<ForeignStates> open_foreign_states(StatesLayout layout, const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(file_of_sample(path)));
  if (bytes == 0)
    return Status(StatusCode::kDataLoss, "the file is empty", path,
                  "its writer died: make these states again");
  const bool safetensors = path.ends_with(".safetensors");
  auto states = layout == StatesLayout::kNemo ? open_nemo_sample(path)
                : safetensors                 ? open_safetensors_states(path)
                                              : open_torch_states(layout, path);
  if (!states.ok()) {
    const Status& status = states.status();
    return status.where().find(path) != std::string::npos ? status : status.at(path);
  }
  states->path = path;
  const std::string stem = stem_of(path);
  if (states->conversation_row < 0) states->conversation_row = row_in(stem, "hs_");
  if (states->conversation_id.empty() && states->conversation_row < 0) states->conversation_id = stem;
  return states;
}

}  // namespace eaglet
