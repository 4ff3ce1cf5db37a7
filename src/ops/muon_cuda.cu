#include <algorithm>
#include <utility>

#include "device/cuda_device.h"
#include "device/cuda_product.h"
#include "ops/cuda_ops.h"
#include "ops/cuda_square_sums.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

// One thread adds in order and puts 1 / max(norm, eps) in the sums' place, so that the host need not wait.
__global__ void invert_norm(double* sums, unsigned count, double eps) {
  double total = 0;
  for (unsigned i = 0; i < count; ++i) total += sums[i];
  const double norm = sqrt(total);
  sums[0] = 1.0 / (norm > eps ? norm : eps);
}

__global__ void scale_by(std::int64_t n, const double* factor, float* x) {
  const auto by = static_cast<float>(factor[0]);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    x[i] *= by;
}

struct Momentum {
  float keep, take, gradient_scale;
  bool nesterov;
};
__global__ void take_momentum(std::int64_t n, const float* gradients, Momentum m, float* momentum,
                              float* update) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    const float gradient = gradients[i] * m.gradient_scale;
    const float now = m.keep * momentum[i] + m.take * gradient;
    momentum[i] = now;
    update[i] = m.nesterov ? m.keep * now + m.take * gradient : now;
  }
}

__global__ void step_down(std::int64_t n, float decay, float step, const float* update, float* weights) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    weights[i] = weights[i] * decay - step * update[i];
}

dim3 grid(std::int64_t n) {
  return dim3(blocks_for(n, kThreads));
}

void copy(std::int64_t n, const float* from, float* to) {
  note(cudaMemcpyAsync(to, from, static_cast<std::size_t>(n) * sizeof(float), cudaMemcpyDeviceToDevice,
                       stream()),
       "newton_schulz");
}

Operand matrix(const float* data, std::int64_t ld, Transpose transposed = Transpose::kNo) {
  return {data, ComputeType::kF32, ld, transposed};
}

// next = a*x + (b*A + c*A*A)*x for the wide form (A = x x^T from the left), or with A = x^T x from the right.
void iterate(std::int64_t rows, std::int64_t columns, const float* x, float* next, float* gram,
             float* polynomial) {
  const auto a = static_cast<float>(kNewtonSchulz[0]), b = static_cast<float>(kNewtonSchulz[1]),
             c = static_cast<float>(kNewtonSchulz[2]);
  const bool wide = rows <= columns;
  const std::int64_t side = std::min(rows, columns);
  product(side, side, std::max(rows, columns), 1.0f,
          matrix(x, columns, wide ? Transpose::kNo : Transpose::kYes),
          matrix(x, columns, wide ? Transpose::kYes : Transpose::kNo), 0.0f, gram, side);
  copy(side * side, gram, polynomial);
  product(side, side, side, c, matrix(gram, side), matrix(gram, side), b, polynomial, side);
  copy(rows * columns, x, next);
  if (wide)
    product(rows, columns, side, 1.0f, matrix(polynomial, side), matrix(x, columns), a, next, columns);
  else
    product(rows, columns, side, 1.0f, matrix(x, columns), matrix(polynomial, side), a, next, columns);
}

}  // namespace

void newton_schulz(std::int64_t rows, std::int64_t columns, int steps, float* x, float* scratch) {
  const std::int64_t n = rows * columns, side = std::min(rows, columns);
  float *now = x, *next = scratch, *gram = scratch + n, *polynomial = gram + side * side;
  const SquareSums sums = square_sums(n, x);
  if (sums.count == 0) return;
  launch("newton_schulz", invert_norm, dim3(1), dim3(1), sums.of_part, sums.count, kNewtonSchulzEps);
  launch("newton_schulz", scale_by, grid(n), dim3(kThreads), n, static_cast<const double*>(sums.of_part), x);
  for (int i = 0; i < steps; ++i) {
    iterate(rows, columns, now, next, gram, polynomial);
    std::swap(now, next);
  }
  if (now != x) copy(n, now, x);
}

void muon(std::int64_t rows, std::int64_t columns, float* weights, const float* gradients, float* momentum,
          double gradient_scale, double learning_rate, const MuonOptions& options, float* scratch) {
  const std::int64_t n = rows * columns, side = std::min(rows, columns);
  float* update = scratch + n + 2 * side * side;
  const Momentum m{static_cast<float>(options.momentum), static_cast<float>(1.0 - options.momentum),
                   static_cast<float>(gradient_scale), options.nesterov};
  launch("muon", take_momentum, grid(n), dim3(kThreads), n, gradients, m, momentum, update);
  newton_schulz(rows, columns, options.ns_steps, update, scratch);
  launch("muon", step_down, grid(n), dim3(kThreads), n,
         static_cast<float>(1.0 - learning_rate * options.weight_decay),
         static_cast<float>(learning_rate * muon_rate_factor(options.rate, rows, columns)),
         static_cast<const float*>(update), weights);
}

}  // namespace eaglet::cuda
