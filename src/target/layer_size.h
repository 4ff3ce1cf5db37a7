#pragma once

#include <cstdint>

#include "target/target_config.h"

namespace eaglet {

/// Weights of a layer, norms and biases left out, by what they are for; 0 where the model has none.
struct LayerSize {
  std::int64_t attention = 0, mlp = 0;
  std::int64_t expert = 0;  // one of them
  std::int64_t shared = 0;  // what every token of a layer with experts goes through: shared experts, router
  std::int64_t row = 0;     // floats that a row of a chunk needs beside its state
};
LayerSize layer_size(const TargetConfig& config);

}  // namespace eaglet
