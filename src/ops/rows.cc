#include "ops/rows.h"

#include <algorithm>
#include <cstring>

#include "device/threads.h"
#include "ops/device_ops.h"
#include "ops/vector_math.h"

namespace eaglet {

void gather_rows(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                 float* to) {
  if (const DeviceOps* device = device_ops(to)) return device->gather_rows(n, width, from, index, to);
  parallel_for(n, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::memcpy(to + i * width, from + (index != nullptr ? index[i] : i) * width,
                  static_cast<std::size_t>(width) * sizeof(float));
  });
}

void scatter_add_rows(std::int64_t n, std::int64_t width, const float* from, const std::int32_t* index,
                      float* to) {
  if (const DeviceOps* device = device_ops(to)) return device->scatter_add_rows(n, width, from, index, to);
  parallel_for(n, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      vaxpy(1.0f, from + i * width, width, to + (index != nullptr ? index[i] : i) * width);
  });
}

void scatter_add_repeated_rows(std::int64_t n, std::int64_t width, const float* from,
                               const std::int32_t* index, float* to) {
  if (const DeviceOps* device = device_ops(to))
    return device->scatter_add_repeated_rows(n, width, from, index, to);
  // Threads share out columns: two rows that meet in one are added in their order.
  parallel_for(width, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < n; ++i)
      vaxpy(1.0f, from + i * width + begin, end - begin, to + index[i] * width + begin);
  });
}

void zero_rows(std::int64_t n, std::int64_t width, float* to) {
  if (const DeviceOps* device = device_ops(to)) return device->zero_rows(n, width, to);
  parallel_for(n, 32, [&](std::int64_t begin, std::int64_t end) {
    std::fill(to + begin * width, to + end * width, 0.0f);
  });
}

}  // namespace eaglet
