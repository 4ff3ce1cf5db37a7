#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/draft_weights.h"

namespace eaglet {

/// AdamW's memory: both moments in the layout of the trainable parameters, and how many updates were made.
struct OptimizerState {
  std::vector<float> first_moment, second_moment;  // [trainable elements]
  std::int64_t updates = 0;
};

/// optimizer.safetensors: exp_avg.<name> and exp_avg_sq.<name> per trainable tensor, `updates` in the
/// metadata.
Status write_optimizer(const std::string& path, const std::vector<ParameterInfo>& table,
                       const OptimizerState& state);
/// kDataLoss when a tensor is missing or has another shape. `state` keeps its sizes.
Status read_optimizer(const std::string& path, const std::vector<ParameterInfo>& table,
                      OptimizerState* state);

}  // namespace eaglet
