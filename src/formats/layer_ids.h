#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// What a layer number counts. A target of n layers has n + 1 places in its residual stream: 0 the embedding,
/// b the state after b layers, n the last state before the final norm. We count places everywhere.
///   kInput   id k is place k (the input of layer k): vLLM, llama.cpp, speculators since 0.5, eaglet
///   kOutput  id k is the output of layer k, place k + 1: SGLang, SpecForge, Model-Optimizer, NeMo
enum class LayerConvention { kInput, kOutput };

/// "input" or "output"; kUsage for anything else.
Result<LayerConvention> layer_convention_from_name(const std::string& name);

/// Checked places: rising, within first..n. kUsage names the first id that is not, and both countings of it.
Status check_layer_ids(const std::vector<std::int32_t>& ids, std::int32_t first, std::int64_t num_layers);

/// `ids` as places, checked (within 0..n).
Result<std::vector<std::int32_t>> layer_places(std::vector<std::int32_t> ids, LayerConvention convention,
                                               std::int64_t num_layers);

/// [2, n/2, n-3]: what drafts are served with when nobody says anything. kUsage for a target so shallow that
/// these would repeat or leave it.
Result<std::vector<std::int32_t>> usual_layer_ids(std::int64_t num_layers);

/// "2 = after 2 of 8 layers, 8 = after all 8 layers (before the final norm)".
std::string describe_layer_ids(const std::vector<std::int32_t>& places, std::int64_t num_layers);

}  // namespace eaglet
