#include "ops/rows.h"

#include <algorithm>
#include <cstring>

#include "device/threads.h"
#include "ops/vector_math.h"

namespace eaglet {

void gather_rows(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                 float* to) {
  parallel_for(n, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::memcpy(to + i * width, from + (index != nullptr ? index[i] : i) * width,
                  static_cast<std::size_t>(width) * sizeof(float));
  });
}

void scatter_add_rows(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                      float* to) {
  parallel_for(n, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      vaxpy(1.0f, from + i * width, width, to + (index != nullptr ? index[i] : i) * width);
  });
}

void zero_rows(std::int64_t n, std::int64_t width, float* to) {
  parallel_for(n, 32, [&](std::int64_t begin, std::int64_t end) {
    std::fill(to + begin * width, to + end * width, 0.0f);
  });
}

}  // namespace eaglet
