#include "ops/bias.h"

#include "device/threads.h"
#include "ops/device_ops.h"
#include "ops/vector_math.h"

namespace eaglet {

void add_bias(std::int64_t n, std::int64_t width, const float* bias, float* y) {
  if (const DeviceOps* device = device_ops(y)) return device->add_bias(n, width, bias, y);
  if (bias == nullptr) return;
  parallel_for(n, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) vaxpy(1.0f, bias, width, y + i * width);
  });
}

void bias_backward(std::int64_t n, std::int64_t width, const float* dy, float* db) {
  if (const DeviceOps* device = device_ops(dy)) return device->bias_backward(n, width, dy, db);
  if (db == nullptr) return;
  // Threads share out columns, so the order of each sum is that of the rows.
  parallel_for(width, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < n; ++i) vaxpy(1.0f, dy + i * width + begin, end - begin, db + begin);
  });
}

}  // namespace eaglet
