#include "ops/joined_rows.h"

#include <algorithm>

#include "device/threads.h"
#include "ops/bias.h"

namespace eaglet {

void take_joined(std::int64_t n, std::int64_t width, std::int64_t distance, const float* from,
                 const float* bias, float* to) {
  parallel_for(n, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      std::copy_n(from + row * distance, width, to + row * width);
  });
  add_bias(n, width, bias, to);
}

float* room(std::vector<float>* buffer, std::int64_t n) {
  const auto needed = static_cast<std::size_t>(n);
  if (buffer->size() < needed) buffer->resize(needed);
  return buffer->data();
}

}  // namespace eaglet
