#include "inspect/number_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace eaglet {
namespace {

constexpr std::int64_t kChunk = 4096;

/// fp8 numbers that are none: E4M3 (the "fn" kind) has only NaN, at all ones; E5M2 is an IEEE type.
bool fp8_not_finite(Dtype dtype, std::uint8_t bits) {
  return dtype == Dtype::kF8E4M3 ? (bits & 0x7f) == 0x7f : (bits & 0x7c) == 0x7c;
}

bool is_fp8(Dtype dtype) {
  return dtype == Dtype::kF8E4M3 || dtype == Dtype::kF8E5M2;
}

void note(std::int64_t index, bool is_nan, NumberFacts* facts) {
  if (facts->first_not_finite) return;
  facts->first_not_finite = index;
  facts->first_is_nan = is_nan;
}

void check_fp8(Dtype dtype, const std::byte* data, std::int64_t elements, NumberFacts* facts) {
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto bits = static_cast<std::uint8_t>(data[i]);
    if ((bits & 0x7f) != 0) facts->all_zero = false;
    if (fp8_not_finite(dtype, bits)) note(i, dtype == Dtype::kF8E4M3 || (bits & 3) != 0, facts);
  }
}

}  // namespace

NumberFacts check_numbers(Dtype dtype, const std::byte* data, std::int64_t elements) {
  NumberFacts facts;
  if (is_fp8(dtype)) {
    check_fp8(dtype, data, elements, &facts);
    return facts;
  }
  float values[kChunk];
  const auto width = static_cast<std::int64_t>(dtype_bytes(dtype));
  for (std::int64_t first = 0; first < elements; first += kChunk) {
    const std::int64_t n = std::min(kChunk, elements - first);
    if (!convert_to_f32(dtype, data + first * width, static_cast<std::size_t>(n), values)) {
      facts.all_zero =
          std::all_of(data, data + elements * width, [](std::byte b) { return b == std::byte{0}; });
      return facts;  // a whole-number type
    }
    for (std::int64_t i = 0; i < n; ++i) {
      if (!std::isfinite(values[i])) note(first + i, std::isnan(values[i]), &facts);
      if (values[i] != 0) facts.all_zero = false;
    }
  }
  return facts;
}

std::string place_in(const std::vector<std::int64_t>& shape, std::int64_t index) {
  std::vector<std::int64_t> place(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    place[d] = index % shape[d];
    index /= shape[d];
  }
  return shape_text(place);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace eaglet
