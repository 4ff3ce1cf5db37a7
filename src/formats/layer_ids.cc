#include "formats/layer_ids.h"

#include <fmt/format.h>

namespace eaglet {

Result<LayerConvention> layer_convention_from_name(const std::string& name) {
  if (name == "input") return LayerConvention::kInput;
  if (name == "output") return LayerConvention::kOutput;
  return Status(StatusCode::kUsage, "there is no layer convention '" + name + "'", "--layer-convention",
                "input (id k = the input of layer k) or output (id k = the output of layer k)");
}

Status check_layer_ids(const std::vector<std::int32_t>& ids, std::int32_t first, std::int64_t num_layers) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool in_range = ids[i] >= first && ids[i] <= num_layers;
    if (in_range && (i == 0 || ids[i] > ids[i - 1])) continue;
    return Status(StatusCode::kUsage,
                  in_range ? fmt::format("layer ids must rise: {} comes after {}", ids[i], ids[i - 1])
                           : fmt::format("layer id {} is outside {}..{}", ids[i], first, num_layers),
                  "--target-layer-ids",
                  "id k is the state after k layers (the input of layer k); the usual choice is 2, L/2, L-3");
  }
  return {};
}

Result<std::vector<std::int32_t>> layer_places(std::vector<std::int32_t> ids, LayerConvention convention,
                                               std::int64_t num_layers) {
  if (convention == LayerConvention::kOutput) {
    for (std::int32_t& id : ids) {
      if (id < 0 || id >= num_layers)
        return Status(StatusCode::kUsage,
                      fmt::format("there is no output of layer {}: the layers are 0..{}", id, num_layers - 1),
                      "--target-layer-ids",
                      "with --layer-convention output an id is a layer's number, counted from 0");
      ++id;
    }
  }
  EAGLET_RETURN_IF_ERROR(check_layer_ids(ids, 0, num_layers));
  return ids;
}

Result<std::vector<std::int32_t>> usual_layer_ids(std::int64_t num_layers) {
  const auto n = static_cast<std::int32_t>(num_layers);
  std::vector<std::int32_t> ids = {2, n / 2, n - 3};
  if (check_layer_ids(ids, 1, num_layers).ok()) return ids;
  return Status(StatusCode::kUsage,
                fmt::format("a target of {} layers is too shallow for the usual three captured layers: "
                            "2, L/2, L-3 would be {}",
                            n, fmt::join(ids, ", ")),
                "--target-layer-ids", "name the layers: id k is the state after k layers");
}

std::string describe_layer_ids(const std::vector<std::int32_t>& places, std::int64_t num_layers) {
  std::string text;
  for (const std::int32_t place : places) {
    text += text.empty() ? "" : ", ";
    if (place == 0)
      text += "0 = the embedding";
    else if (place == num_layers)
      text += fmt::format("{} = after all {} layers (before the final norm)", place, num_layers);
    else
      text += fmt::format("{} = after {} of {} layers", place, place, num_layers);
  }
  return text;
}

}  // namespace eaglet
