#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// A tensor of some file, whatever its container.
struct SourceTensor {
  std::string name;                        // as the file calls it
  std::vector<std::int64_t> shape;         // [out, in]
  std::string type;                        // "BF16", "Q8_0", ...: for messages
  std::function<Status(float*)> read_f32;  // all elements; kDataLoss for a type that is no floating-point one
  std::function<Result<std::vector<std::int64_t>>()> read_i64;
};

/// The tensors of a draft's weights. Reading changes nothing; the closures keep the files open.
struct TensorSource {
  std::string path;                   // for messages
  std::vector<SourceTensor> tensors;  // sorted by name
  std::vector<std::string> notes;     // what was done on the way, for the load report
  /// nullptr when there is no tensor of that name.
  const SourceTensor* find(const std::string& name) const;
};

/// One model.safetensors, several with an index, or a pytorch_model.bin (read without running anything). fp8
/// matrices are multiplied by their scales: `weight_scale` (one, or one for each row) or `weight_scale_inv`
/// (one for each block of 128 x 128). kNotFound without weights.
Result<TensorSource> open_tensor_source(const std::string& directory);

}  // namespace eaglet
