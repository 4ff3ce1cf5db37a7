#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "formats/safetensors_folder.h"
#include "target/target_tensors.h"

namespace eaglet {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

// A transformers folder, its matrices as they are or quantised. What a matrix X.weight is stored as follows
// from its tensors: X.weight alone; X.weight of fp8 with X.weight_scale_inv or X.weight_scale;
// X.weight_packed with X.weight_scale, X.weight_shape and perhaps X.weight_zero_point.
class FolderWeights : public WeightSource {
 public:
  FolderWeights(SafetensorsFolder folder, std::string prefix, const WeightQuantisation& quantisation)
      : folder_(std::move(folder)), prefix_(std::move(prefix)), quantisation_(quantisation) {}

  Result<std::vector<float>> read(const std::string& name, const std::vector<std::int64_t>& shape) override {
    if (!folder_.has(prefix_ + name) && folder_.has(prefix_ + name + "_packed"))
      return read_packed(name, shape);
    EAGLET_ASSIGN_OR_RETURN(const Tensor tensor, find(name));
    EAGLET_RETURN_IF_ERROR(check_shape(tensor, shape));
    if (tensor.entry->dtype == Dtype::kF8E4M3) return read_fp8(name, tensor);
    auto values = tensor.file->read_f32(tensor.entry->name);
    tensor.file->release(*tensor.entry);  // or a model larger than the memory would seem to fill it
    return values;
  }

 private:
  using Tensor = SafetensorsFolder::Tensor;

  Result<Tensor> find(const std::string& name) {
    const std::lock_guard lock(opening_);  // files are opened when they are needed
    auto tensor = folder_.find(prefix_ + name);
    if (tensor.ok()) tensor->file->expect(*tensor->entry);
    return tensor;
  }

  static Status check_shape(const Tensor& tensor, const std::vector<std::int64_t>& shape) {
    if (tensor.entry->shape == shape) return {};
    return Status(StatusCode::kConfig,
                  fmt::format("tensor {} is [{}], config.json says [{}]", tensor.entry->name,
                              fmt::join(tensor.entry->shape, ", "), fmt::join(shape, ", ")),
                  tensor.file->path(), "weights and config.json are of different models: fetch both again");
  }

  Result<std::vector<float>> read_fp8(const std::string& name, const Tensor& tensor) {
    const bool inverse = folder_.has(prefix_ + name + "_scale_inv");
    if (quantisation_.kind != WeightQuantisation::Kind::kFp8 || tensor.entry->shape.size() != 2)
      return Status(StatusCode::kConfig,
                    "tensor " + tensor.entry->name + " is fp8, config.json does not say so",
                    tensor.file->path(), "fetch config.json again");
    EAGLET_ASSIGN_OR_RETURN(const Tensor scale, find(name + (inverse ? "_scale_inv" : "_scale")));
    EAGLET_ASSIGN_OR_RETURN(const std::vector<float> scales, scale.file->read_f32(scale.entry->name));
    auto values = dequantise_fp8(quantisation_, tensor.entry->shape[0], tensor.entry->shape[1],
                                 reinterpret_cast<const std::uint8_t*>(tensor.file->data(*tensor.entry)),
                                 scale.entry->shape, scales);
    tensor.file->release(*tensor.entry);
    if (!values.ok()) return values.status().at(tensor.file->path() + ", tensor " + tensor.entry->name);
    return values;
  }

  Result<std::vector<std::uint32_t>> words(const std::string& name, std::int64_t rows, std::int64_t columns) {
    EAGLET_ASSIGN_OR_RETURN(const Tensor tensor, find(name));
    EAGLET_RETURN_IF_ERROR(check_shape(tensor, {rows, columns}));
    if (tensor.entry->dtype != Dtype::kI32)
      return Status(StatusCode::kConfig, "tensor " + tensor.entry->name + " is not I32", tensor.file->path());
    std::vector<std::uint32_t> read(static_cast<std::size_t>(rows * columns));
    std::memcpy(read.data(), tensor.file->data(*tensor.entry), 4 * read.size());  // may lie unaligned
    tensor.file->release(*tensor.entry);
    return read;
  }

  Result<std::vector<float>> read_packed(const std::string& name, const std::vector<std::int64_t>& shape) {
    const WeightQuantisation& q = quantisation_;
    if (q.kind != WeightQuantisation::Kind::kPackedInt || shape.size() != 2)
      return Status(StatusCode::kConfig,
                    "tensor " + prefix_ + name + "_packed is there, config.json does not tell how",
                    folder_.directory(), "fetch config.json again");
    const std::int64_t rows = shape[0], columns = shape[1];
    EAGLET_ASSIGN_OR_RETURN(const Tensor says, find(name + "_shape"));
    EAGLET_ASSIGN_OR_RETURN(const std::vector<std::int64_t> stored, says.file->read_i64(says.entry->name));
    if (stored != shape)
      return Status(StatusCode::kConfig,
                    fmt::format("tensor {} is [{}], config.json says [{}]", prefix_ + name,
                                fmt::join(stored, ", "), fmt::join(shape, ", ")),
                    says.file->path(), "weights and config.json are of different models: fetch both again");
    const std::int64_t groups = q.group > 0 ? (columns + q.group - 1) / q.group : 1;
    EAGLET_ASSIGN_OR_RETURN(const auto packed, words(name + "_packed", rows, packed_words(columns, q.bits)));
    EAGLET_ASSIGN_OR_RETURN(const Tensor scale, find(name + "_scale"));
    EAGLET_RETURN_IF_ERROR(check_shape(scale, {rows, groups}));
    EAGLET_ASSIGN_OR_RETURN(const std::vector<float> scales, scale.file->read_f32(scale.entry->name));
    if (folder_.has(prefix_ + name + "_g_idx"))
      return Status(StatusCode::kConfig,
                    "tensor " + prefix_ + name + "_g_idx: columns in another order are not read",
                    folder_.directory());
    std::vector<std::uint32_t> zero_points;
    if (folder_.has(prefix_ + name + "_zero_point")) {
      EAGLET_ASSIGN_OR_RETURN(zero_points, words(name + "_zero_point", packed_words(rows, q.bits), groups));
    }
    return dequantise_packed(q, rows, columns, {packed.data(), packed_words(columns, q.bits)}, scales,
                             zero_points.empty() ? nullptr : zero_points.data());
  }

  SafetensorsFolder folder_;
  std::string prefix_;
  WeightQuantisation quantisation_;
  std::mutex opening_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> open_folder_weights(const std::string& directory,
                                                          const WeightQuantisation& quantisation) {
  EAGLET_ASSIGN_OR_RETURN(SafetensorsFolder folder, SafetensorsFolder::open(directory));
  for (const char* prefix : {"", "language_model."})
    if (folder.has(std::string(prefix) + kEmbedding))
      return std::unique_ptr<WeightSource>(
          std::make_unique<FolderWeights>(std::move(folder), prefix, quantisation));
  return Status(StatusCode::kConfig, std::string("there is no ") + kEmbedding, directory,
                "give a language model's folder");
}

}  // namespace eaglet
