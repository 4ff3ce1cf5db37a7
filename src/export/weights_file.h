#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "draft/draft_weights.h"
#include "export/export.h"

namespace eaglet {

/// A weight under the name that a loader expects.
struct NamedWeight {
  std::string name;
  std::vector<std::int64_t> shape;
  const float* values = nullptr;
};

/// model.safetensors with the weights in `dtype` and, for a reduced vocabulary, d2t (offsets) and t2d.
Status write_weights(const std::string& path, const std::vector<NamedWeight>& weights,
                     const DraftVocab& vocab, WeightDtype dtype);

}  // namespace eaglet
