#include <fmt/format.h>

#include "formats/safetensors_folder.h"
#include "target/target_tensors.h"

namespace eaglet {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

class FolderWeights : public WeightSource {
 public:
  FolderWeights(SafetensorsFolder folder, std::string prefix)
      : folder_(std::move(folder)), prefix_(std::move(prefix)) {}

  bool has(const std::string& name) const override { return folder_.has(prefix_ + name); }

  Result<std::vector<float>> read(const std::string& name, const std::vector<std::int64_t>& shape) override {
    EAGLET_ASSIGN_OR_RETURN(const SafetensorsFolder::Tensor tensor, folder_.find(prefix_ + name));
    if (tensor.entry->shape == shape) return tensor.file->read_f32(tensor.entry->name);
    return Status(StatusCode::kConfig,
                  fmt::format("tensor {} is [{}], config.json says [{}]", tensor.entry->name,
                              fmt::join(tensor.entry->shape, ", "), fmt::join(shape, ", ")),
                  tensor.file->path(), "weights and config.json are of different models: fetch both again");
  }

 private:
  SafetensorsFolder folder_;
  std::string prefix_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> open_folder_weights(const std::string& directory) {
  EAGLET_ASSIGN_OR_RETURN(SafetensorsFolder folder, SafetensorsFolder::open(directory));
  for (const char* prefix : {"", "language_model."})
    if (folder.has(std::string(prefix) + kEmbedding))
      return std::unique_ptr<WeightSource>(std::make_unique<FolderWeights>(std::move(folder), prefix));
  return Status(StatusCode::kConfig, std::string("there is no ") + kEmbedding, directory,
                "give a language model's folder");
}

}  // namespace eaglet
