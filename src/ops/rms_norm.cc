#include "ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "device/threads.h"
#include "ops/device_ops.h"
#include "ops/vector_math.h"

namespace eaglet {

void rms_norm(std::int64_t n, std::int64_t width, const float* x, std::int64_t ldx, const float* w,
              double eps, float* y, std::int64_t ldy, float* inv) {
  if (const DeviceOps* device = device_ops(y)) return device->rms_norm(n, width, x, ldx, w, eps, y, ldy, inv);
  parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double mean = static_cast<double>(vsum_squares(x + i * ldx, width)) / static_cast<double>(width);
      inv[i] = static_cast<float>(1.0 / std::sqrt(mean + eps));
      vscale_by(inv[i], x + i * ldx, w, width, y + i * ldy);
    }
  });
}

namespace {

void backward_row(std::int64_t width, const float* x, const float* w, float inv, const float* dy,
                  bool accumulate, float* dx) {
  const float mean = vdot3(dy, x, w, width) / static_cast<float>(width);
  const float pull = inv * inv * inv * mean;
  if (accumulate) {
    for (std::int64_t j = 0; j < width; ++j) dx[j] += inv * dy[j] * w[j] - pull * x[j];
  } else {
    for (std::int64_t j = 0; j < width; ++j) dx[j] = inv * dy[j] * w[j] - pull * x[j];
  }
}

}  // namespace

void rms_norm_backward(std::int64_t n, std::int64_t width, const float* x, const float* w, const float* inv,
                       const float* dy, bool accumulate, float* dx, float* dw, float* partial) {
  if (const DeviceOps* device = device_ops(dy))
    return device->rms_norm_backward(n, width, x, w, inv, dy, accumulate, dx, dw, partial);
  const std::int64_t parts = std::min<std::int64_t>(num_threads(), std::max<std::int64_t>(n / 16, 1));
  parallel_for(parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      float* sum = partial + part * width;
      if (dw != nullptr) std::fill(sum, sum + width, 0.0f);
      for (std::int64_t i = n * part / parts; i < n * (part + 1) / parts; ++i) {
        const float* xi = x + i * width;
        const float* dyi = dy + i * width;
        if (dw != nullptr)
          for (std::int64_t j = 0; j < width; ++j) sum[j] += inv[i] * dyi[j] * xi[j];
        if (dx != nullptr) backward_row(width, xi, w, inv[i], dyi, accumulate, dx + i * width);
      }
    }
  });
  if (dw == nullptr || n == 0) return;
  for (std::int64_t part = 0; part < parts; ++part) vaxpy(1.0f, partial + part * width, width, dw);
}

void rms_norm_weight_backward(std::int64_t n, std::int64_t width, const float* x, std::int64_t ldx,
                              const float* inv, const float* dy, std::int64_t lddy, float* dw) {
  if (const DeviceOps* device = device_ops(dy))
    return device->rms_norm_weight_backward(n, width, x, ldx, inv, dy, lddy, dw);
  // Threads share out columns, so the order of each sum is that of the rows.
  parallel_for(width, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = begin; j < end; ++j) dw[j] += dy[i * lddy + j] * x[i * ldx + j] * inv[i];
  });
}

}  // namespace eaglet
