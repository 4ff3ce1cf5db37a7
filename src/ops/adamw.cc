#include "ops/adamw.h"

#include <algorithm>
#include <cmath>

#include "ops/adamw_scalars.h"
#include "ops/device_ops.h"

namespace eaglet {
namespace {

// Work is cut into blocks that do not depend on the thread count, so neither do the results.
constexpr std::int64_t kBlock = 16384;
constexpr std::int64_t kMaxSums =
    4096;  // partial sums of l2_norm, on the stack: nothing is allocated in a step

void adamw_block(std::int64_t n, float* __restrict w, const float* __restrict g, float* __restrict m,
                 float* __restrict v, const AdamwScalars& s) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * s.gradient_scale;
    const float first = s.beta1 * m[i] + s.one_minus_beta1 * gradient;
    const float second = s.beta2 * v[i] + s.one_minus_beta2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    w[i] = w[i] * s.keep - s.rate * (first / (std::sqrt(second) * s.inverse_root_correction + s.eps));
  }
}

double square_sum(std::int64_t n, const float* __restrict values) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace

void adamw(std::int64_t n, float* weights, const float* gradients, float* first_moment, float* second_moment,
           double gradient_scale, double learning_rate, std::int64_t update, const AdamwOptions& options) {
  if (const DeviceOps* device = device_ops(weights))
    return device->adamw(n, weights, gradients, first_moment, second_moment, gradient_scale, learning_rate,
                         update, options);
  const AdamwScalars s = adamw_scalars(gradient_scale, learning_rate, update, options);
#pragma omp parallel for schedule(static)
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, n - begin);
    adamw_block(count, weights + begin, gradients + begin, first_moment + begin, second_moment + begin, s);
  }
}

double l2_norm(std::int64_t n, const float* values) {
  if (const DeviceOps* device = device_ops(values)) return device->l2_norm(n, values);
  double sums[kMaxSums];
  const std::int64_t block = std::max<std::int64_t>(kBlock, (n + kMaxSums - 1) / kMaxSums);
  const std::int64_t blocks = (n + block - 1) / block;
#pragma omp parallel for schedule(static)
  for (std::int64_t b = 0; b < blocks; ++b)
    sums[b] = square_sum(std::min(block, n - b * block), values + b * block);
  double total = 0;
  for (std::int64_t b = 0; b < blocks; ++b) total += sums[b];
  return std::sqrt(total);
}

}  // namespace eaglet
