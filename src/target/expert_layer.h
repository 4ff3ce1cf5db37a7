#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "target/layer_forward.h"

namespace eaglet {

/// Which experts each row goes to, and with what weight: [rows, per_token].
struct Routing {
  std::vector<std::int32_t> expert;
  std::vector<float> weight;
};

/// logits [n, count] of the router. Source: DeepseekV3TopkRouter and Qwen3MoeTopKRouter of the transformers
/// library: sigmoid or softmax; with groups only the groups_kept whose two best experts score highest; a
/// correction that chooses but does not weigh; equal scores: the lower expert.
Routing route(const ExpertConfig& config, std::int64_t n, const float* logits,
              const std::vector<float>& correction);

/// Experts that are read at once, a thread each: taking back quantised numbers is slow beside many cores'
/// arithmetic. 2 to 16, one for each eight threads.
std::size_t experts_read_ahead();

/// x [n, hidden] += experts(norm(x)), over all rows of a pass: each expert is read once, while those before
/// it compute, and gets its rows together. `scratch` is of each thread; `normed` is memory of [n, hidden].
Status expert_layer(const TargetConfig& config, std::int64_t layer_index, const LayerTensors& layer,
                    std::int64_t n, TargetTensors& tensors, LayerProducts& products, float* x, float* normed,
                    std::vector<LayerScratch>* scratch);
/// The same with all experts of the layer in memory, for the few rows of a step of generation.
void resident_expert_layer(const TargetConfig& config, const LayerTensors& layer, std::int64_t n,
                           const LayerProducts& products, float* x, float* normed,
                           std::vector<LayerScratch>* scratch);

}  // namespace eaglet
