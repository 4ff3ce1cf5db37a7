#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace eaglet {

/// What looking at every number of a tensor found.
struct NumberFacts {
  std::optional<std::int64_t> first_not_finite;  // element index, row-major
  bool first_is_nan = false;
  bool all_zero = true;  // also for a tensor without elements
};
/// Whole-number types are always finite.
NumberFacts check_numbers(Dtype dtype, const std::byte* data, std::int64_t elements);

/// "[5, 2, 3]": where element `index` lies in a tensor of this shape.
std::string place_in(const std::vector<std::int64_t>& shape, std::int64_t index);
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace eaglet
