#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/torch_pickle.h"

namespace eaglet {

/// The number type of a storage class, as "FloatStorage"; of a dtype, as "bfloat16". Empty for others.
std::optional<Dtype> torch_storage_dtype(std::string_view name);
std::optional<Dtype> torch_dtype(std::string_view name);

/// Finds a tensor's numbers: `tensor` has its dtype, shape and stride (as long as the shape, none below 0)
/// and begins `offset` elements into the storage. kDataLoss when it reaches beyond: both the view's last
/// element and its element count must fit, for strides of 0 could make a small file name a tensor of any
/// size.
Status place_tensor(const TorchStorage& storage, std::int64_t offset, TorchTensor* tensor);

/// kDataLoss, with what to do.
Status corrupt_pickle(const std::string& what);

}  // namespace eaglet
