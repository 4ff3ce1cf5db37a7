#include "ops/rope.h"

#include <cmath>

#include "device/threads.h"
#include "ops/device_ops.h"

namespace eaglet {

void rope_angles(std::int64_t n, const std::int32_t* positions, std::int64_t half, const float* inv_freq,
                 float scaling, float* cos, float* sin) {
  if (const DeviceOps* device = device_ops(cos))
    return device->rope_angles(n, positions, half, inv_freq, scaling, cos, sin);
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < half; ++j) {
        // fp32 product first, as torch does; the angle then goes through sin and cos in double.
        const float angle = static_cast<float>(positions[i]) * inv_freq[j];
        cos[i * half + j] = static_cast<float>(std::cos(static_cast<double>(angle))) * scaling;
        sin[i * half + j] = static_cast<float>(std::sin(static_cast<double>(angle))) * scaling;
      }
  });
}

namespace {

void rotate(std::int64_t n, std::int64_t heads, std::int64_t half, const float* cos, const float* sin,
            float direction, float* x) {
  parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* c = cos + i * half;
      const float* s = sin + i * half;
      for (std::int64_t head = 0; head < heads; ++head) {
        float* a = x + (i * heads + head) * 2 * half;
        float* b = a + half;
        for (std::int64_t j = 0; j < half; ++j) {
          const float low = a[j], high = b[j], turn = direction * s[j];
          a[j] = low * c[j] - high * turn;
          b[j] = high * c[j] + low * turn;
        }
      }
    }
  });
}

}  // namespace

void rope_rotate(std::int64_t n, std::int64_t heads, std::int64_t half, const float* cos, const float* sin,
                 float* x) {
  if (const DeviceOps* device = device_ops(x)) return device->rope_rotate(n, heads, half, cos, sin, x);
  rotate(n, heads, half, cos, sin, 1.0f, x);
}

void rope_rotate_backward(std::int64_t n, std::int64_t heads, std::int64_t half, const float* cos,
                          const float* sin, float* dx) {
  if (const DeviceOps* device = device_ops(dx))
    return device->rope_rotate_backward(n, heads, half, cos, sin, dx);
  rotate(n, heads, half, cos, sin, -1.0f, dx);
}

}  // namespace eaglet
