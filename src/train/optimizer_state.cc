#include "train/optimizer_state.h"

#include <charconv>
#include <cstring>

#include "formats/safetensors.h"

namespace eaglet {
namespace {

struct Moment {
  const char* prefix;
  std::vector<float> OptimizerState::*values;
};
constexpr Moment kMoments[] = {{"exp_avg.", &OptimizerState::first_moment},
                               {"exp_avg_sq.", &OptimizerState::second_moment}};

}  // namespace

Status write_optimizer(const std::string& path, const std::vector<ParameterInfo>& table,
                       const OptimizerState& state) {
  std::vector<TensorView> tensors;
  for (const Moment& moment : kMoments)
    for (const ParameterInfo& parameter : table)
      if (parameter.trainable)
        tensors.push_back({moment.prefix + parameter.name, Dtype::kF32, parameter.shape,
                           (state.*moment.values).data() + parameter.offset});
  return write_safetensors(path, tensors, {{"updates", std::to_string(state.updates)}});
}

Status read_optimizer(const std::string& path, const std::vector<ParameterInfo>& table,
                      OptimizerState* state) {
  EAGLET_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  const auto updates = file.metadata().find("updates");
  if (updates == file.metadata().end())
    return Status(StatusCode::kDataLoss, "no count of updates in the metadata", path);
  const std::string& text = updates->second;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), state->updates);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || state->updates < 0)
    return Status(StatusCode::kDataLoss, "the count of updates is not a number: " + text, path);
  for (const Moment& moment : kMoments) {
    for (const ParameterInfo& parameter : table) {
      if (!parameter.trainable) continue;
      const std::string name = moment.prefix + parameter.name;
      const SafetensorsEntry* entry = file.find(name);
      if (entry == nullptr) return Status(StatusCode::kDataLoss, "missing tensor " + name, path);
      if (entry->dtype != Dtype::kF32 || entry->shape != parameter.shape)
        return Status(StatusCode::kDataLoss, "tensor " + name + " does not fit the draft", path);
      std::memcpy((state->*moment.values).data() + parameter.offset, file.data(*entry), entry->bytes);
    }
  }
  return {};
}

}  // namespace eaglet
