#include "ops/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/gemm.h"
#include "device/threads.h"
#include "ops/adamw.h"
#include "ops/device_ops.h"

namespace eaglet {
namespace {

constexpr std::int64_t kGrain = 16384;

void scale(std::int64_t n, float factor, float* x) {
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) x[i] *= factor;
  });
}

void copy(std::int64_t n, const float* from, float* to) {
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::copy(from + begin, from + end, to + begin);
  });
}

// next = a*x + (b*A + c*A*A)*x for the wide form (A = x x^T from the left), or with A = x^T x from the right.
void iterate(std::int64_t rows, std::int64_t columns, const float* x, float* next, float* gram,
             float* polynomial) {
  const auto [a, b, c] = kNewtonSchulz;
  const bool wide = rows <= columns;
  const std::int64_t side = std::min(rows, columns);
  if (wide)
    gemm(Transpose::kNo, Transpose::kYes, side, side, columns, 1.0f, x, columns, x, columns, 0.0f, gram,
         side);
  else
    gemm(Transpose::kYes, Transpose::kNo, side, side, rows, 1.0f, x, columns, x, columns, 0.0f, gram, side);
  copy(side * side, gram, polynomial);
  gemm(Transpose::kNo, Transpose::kNo, side, side, side, static_cast<float>(c), gram, side, gram, side,
       static_cast<float>(b), polynomial, side);
  copy(rows * columns, x, next);
  if (wide)
    gemm(Transpose::kNo, Transpose::kNo, rows, columns, side, 1.0f, polynomial, side, x, columns,
         static_cast<float>(a), next, columns);
  else
    gemm(Transpose::kNo, Transpose::kNo, rows, columns, side, 1.0f, x, columns, polynomial, side,
         static_cast<float>(a), next, columns);
}

}  // namespace

double muon_rate_factor(MuonRate rate, std::int64_t rows, std::int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  if (rate == MuonRate::kOriginal) return std::sqrt(std::max(1.0, r / c));
  return 0.2 * std::sqrt(std::max(r, c));
}

std::int64_t muon_scratch_floats(std::int64_t rows, std::int64_t columns) {
  const std::int64_t side = std::min(rows, columns);
  return 2 * rows * columns + 2 * side * side;
}

// scratch: a second x, the gram matrix, its polynomial (and for muon() the update itself, last).
void newton_schulz(std::int64_t rows, std::int64_t columns, int steps, float* x, float* scratch) {
  if (const DeviceOps* device = device_ops(x)) return device->newton_schulz(rows, columns, steps, x, scratch);
  const std::int64_t n = rows * columns, side = std::min(rows, columns);
  float *now = x, *next = scratch, *gram = scratch + n, *polynomial = gram + side * side;
  scale(n, static_cast<float>(1.0 / std::max(l2_norm(n, x), kNewtonSchulzEps)), x);
  for (int i = 0; i < steps; ++i) {
    iterate(rows, columns, now, next, gram, polynomial);
    std::swap(now, next);
  }
  if (now != x) copy(n, now, x);
}

void muon(std::int64_t rows, std::int64_t columns, float* weights, const float* gradients, float* momentum,
          double gradient_scale, double learning_rate, const MuonOptions& options, float* scratch) {
  if (const DeviceOps* device = device_ops(weights))
    return device->muon(rows, columns, weights, gradients, momentum, gradient_scale, learning_rate, options,
                        scratch);
  const std::int64_t n = rows * columns, side = std::min(rows, columns);
  float* update = scratch + n + 2 * side * side;
  const auto keep = static_cast<float>(options.momentum), take = static_cast<float>(1.0 - options.momentum);
  const auto factor = static_cast<float>(gradient_scale);
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float gradient = gradients[i] * factor;
      momentum[i] = keep * momentum[i] + take * gradient;
      update[i] = options.nesterov ? keep * momentum[i] + take * gradient : momentum[i];
    }
  });
  newton_schulz(rows, columns, options.ns_steps, update, scratch);
  const auto decay = static_cast<float>(1.0 - learning_rate * options.weight_decay);
  const auto step = static_cast<float>(learning_rate * muon_rate_factor(options.rate, rows, columns));
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) weights[i] = weights[i] * decay - step * update[i];
  });
}

}  // namespace eaglet
