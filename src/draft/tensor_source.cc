#include "draft/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/files.h"
#include "formats/safetensors_folder.h"
#include "formats/torch_file.h"
#include "tensor/float8.h"

namespace eaglet {
namespace {

constexpr std::int64_t kScaleBlock = 128;  // DeepSeek's fp8: one scale for each block of rows and columns

Status unreadable(const std::string& name, const std::string& type) {
  return Status(StatusCode::kDataLoss,
                fmt::format("{} has type {}; F32, BF16, F16, F64 and scaled F8 are read", name, type));
}

bool is_fp8(Dtype dtype) {
  return dtype == Dtype::kF8E4M3 || dtype == Dtype::kF8E5M2;
}

/// Scales of an fp8 matrix: one, one a row, or one a block.
struct Scales {
  std::vector<float> values;
  std::int64_t block_rows = 1, block_columns = 0;  // 0: a whole row
  std::int64_t columns = 1;                        // blocks in a row
};

Result<Scales> read_scales(const SafetensorsFolder::Tensor& tensor, bool blocks,
                           const std::vector<std::int64_t>& shape) {
  EAGLET_ASSIGN_OR_RETURN(std::vector<float> values, tensor.file->read_f32(tensor.entry->name));
  Scales scales;
  const std::int64_t rows = shape.empty() ? 1 : shape[0], columns = shape.size() < 2 ? 1 : shape[1];
  const auto count = static_cast<std::int64_t>(values.size());
  if (blocks) {
    scales.block_rows = scales.block_columns = kScaleBlock;
    scales.columns = (columns + kScaleBlock - 1) / kScaleBlock;
    if (count != scales.columns * ((rows + kScaleBlock - 1) / kScaleBlock))
      return Status(StatusCode::kDataLoss, fmt::format("{} has {} scales", tensor.entry->name, count));
  } else if (count == 1) {
    scales.block_rows = std::max<std::int64_t>(rows, 1);
  } else if (count != rows) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} has {} scales for {} rows", tensor.entry->name, count, rows));
  }
  scales.values = std::move(values);
  return scales;
}

void dequantise(Dtype dtype, const std::byte* data, const std::vector<std::int64_t>& shape,
                const Scales& scales, float* out) {
  const std::int64_t rows = shape.empty() ? 1 : shape[0], columns = shape.size() < 2 ? 1 : shape[1];
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c, ++out, ++data) {
      const auto bits = static_cast<std::uint8_t>(*data);
      const std::int64_t column = scales.block_columns > 0 ? c / scales.block_columns : 0;
      const float scale =
          scales.values[static_cast<std::size_t>(r / scales.block_rows * scales.columns + column)];
      *out = (dtype == Dtype::kF8E4M3 ? f8e4m3_to_f32(bits) : f8e5m2_to_f32(bits)) * scale;
    }
}

SourceTensor plain_tensor(const std::shared_ptr<SafetensorsFolder>& folder,
                          const SafetensorsFolder::Tensor& from) {
  SourceTensor tensor;
  tensor.name = from.entry->name;
  tensor.shape = from.entry->shape;
  tensor.type = std::string(dtype_name(from.entry->dtype));
  tensor.read_f32 = [folder, from](float* values) -> Status {
    const auto n = static_cast<std::size_t>(from.entry->elements());
    if (convert_to_f32(from.entry->dtype, from.file->data(*from.entry), n, values)) return {};
    return unreadable(from.entry->name, std::string(dtype_name(from.entry->dtype)));
  };
  tensor.read_i64 = [folder, from] { return from.file->read_i64(from.entry->name); };
  return tensor;
}

/// `weight` of fp8 with the scales that lie beside it.
Result<SourceTensor> fp8_tensor(const std::shared_ptr<SafetensorsFolder>& folder,
                                const SafetensorsFolder::Tensor& from, std::set<std::string>* used) {
  SourceTensor tensor = plain_tensor(folder, from);
  for (const char* suffix : {"_scale", "_scale_inv"}) {
    const std::string name = tensor.name + suffix;
    if (!folder->has(name)) continue;
    EAGLET_ASSIGN_OR_RETURN(const SafetensorsFolder::Tensor scale, folder->find(name));
    EAGLET_ASSIGN_OR_RETURN(const Scales scales,
                            read_scales(scale, std::string(suffix) == "_scale_inv", tensor.shape));
    if (tensor.shape.size() > 2) return unreadable(tensor.name, tensor.type);
    used->insert(name);
    tensor.read_f32 = [folder, from, scales](float* values) -> Status {
      dequantise(from.entry->dtype, from.file->data(*from.entry), from.entry->shape, scales, values);
      return {};
    };
    return tensor;
  }
  return Status(StatusCode::kDataLoss,
                fmt::format("{} is of type {} and has no scale", tensor.name, tensor.type), "",
                "fp8 weights need a weight_scale or weight_scale_inv beside them");
}

Result<TensorSource> from_safetensors(const std::string& directory) {
  EAGLET_ASSIGN_OR_RETURN(SafetensorsFolder opened, SafetensorsFolder::open(directory));
  const auto folder = std::make_shared<SafetensorsFolder>(std::move(opened));
  TensorSource source;
  source.path = directory;
  std::set<std::string> scales;
  for (const std::string& name : folder->names()) {
    EAGLET_ASSIGN_OR_RETURN(const SafetensorsFolder::Tensor from, folder->find(name));
    if (!is_fp8(from.entry->dtype)) {
      source.tensors.push_back(plain_tensor(folder, from));
      continue;
    }
    EAGLET_ASSIGN_OR_RETURN(SourceTensor tensor, fp8_tensor(folder, from, &scales));
    source.tensors.push_back(std::move(tensor));
  }
  // Scales of activations and key-value caches belong to a server's arithmetic, not to the weights.
  std::erase_if(source.tensors, [&](const SourceTensor& tensor) {
    return scales.contains(tensor.name) ||
           (!scales.empty() &&
            (tensor.name.ends_with(".input_scale") || tensor.name.ends_with(".output_scale") ||
             tensor.name.ends_with(".k_scale") || tensor.name.ends_with(".v_scale")));
  });
  if (!scales.empty())
    source.notes.push_back(fmt::format("{} fp8 matrices were multiplied by their scales", scales.size()));
  return source;
}

Result<TensorSource> from_torch(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(TorchFile opened, TorchFile::open(path));
  const auto file = std::make_shared<TorchFile>(std::move(opened));
  if (file->root().kind != TorchValue::Kind::kDict)
    return Status(StatusCode::kDataLoss,
                  fmt::format("it holds {}, not a dict of tensors", kind_name(file->root().kind)), path,
                  "give a state dict");
  TensorSource source;
  source.path = path;
  for (std::size_t i = 0; i < file->root().items.size(); ++i) {
    const TorchValue& key = *file->root().items[i];
    const TorchValue* value = file->root().values[i];
    if (key.kind != TorchValue::Kind::kString || value->kind != TorchValue::Kind::kTensor) continue;
    SourceTensor tensor;
    tensor.name = key.text;
    tensor.shape = value->tensor.shape;
    tensor.type = std::string(dtype_name(value->tensor.dtype));
    tensor.read_f32 = [file, value, name = key.text, type = tensor.type](float* values) -> Status {
      const auto read = TorchFile::read_f32(value->tensor);
      if (!read.ok()) return unreadable(name, type);
      std::copy(read->begin(), read->end(), values);
      return {};
    };
    tensor.read_i64 = [file, value] { return TorchFile::read_i64(value->tensor); };
    source.tensors.push_back(std::move(tensor));
  }
  std::sort(source.tensors.begin(), source.tensors.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
  source.notes.push_back("weights read from a pytorch_model.bin");
  return source;
}

}  // namespace

const SourceTensor* TensorSource::find(const std::string& name) const {
  const auto it = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const SourceTensor& t, const std::string& n) { return t.name < n; });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

Result<TensorSource> open_tensor_source(const std::string& directory) {
  const bool safetensors = path_exists(directory + "/model.safetensors") ||
                           path_exists(directory + "/model.safetensors.index.json");
  const std::string torch = directory + "/pytorch_model.bin";
  if (!safetensors && !path_exists(torch))
    return Status(StatusCode::kNotFound, "no model.safetensors", directory,
                  "a draft is one config.json and its weights: model.safetensors, or parts with an index, or "
                  "pytorch_model.bin");
  auto source = safetensors ? from_safetensors(directory) : from_torch(torch);
  if (!source.ok() && source.status().where().find(directory) == std::string::npos)
    return source.status().at(directory);
  return source;
}

}  // namespace eaglet
