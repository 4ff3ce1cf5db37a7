#pragma once

#include <cstdint>

namespace eaglet {

struct AdamwOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

/// One AdamW update in place (decoupled decay, bias-corrected; torch.optim.AdamW):
///   w *= 1 - lr*weight_decay;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;
///   w -= lr/(1-b1^t) * m / (sqrt(v/(1-b2^t)) + eps)          with g = gradient * gradient_scale
/// All arrays [n] fp32; `update` t counts from 1. Same result for any thread count.
void adamw(std::int64_t n, float* weights, const float* gradients, float* first_moment, float* second_moment,
           double gradient_scale, double learning_rate, std::int64_t update, const AdamwOptions& options);

/// sqrt(sum of squares), summed in double in fixed blocks: the same bits for any thread count.
double l2_norm(std::int64_t n, const float* values);

}  // namespace eaglet
