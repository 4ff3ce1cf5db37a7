#pragma once

#include <cmath>
#include <cstdint>

#include "ops/adamw.h"

namespace eaglet {

/// What an AdamW update multiplies and adds, the same for every element: adamw.h's formula taken apart.
struct AdamwScalars {
  float gradient_scale, keep, beta1, one_minus_beta1, beta2, one_minus_beta2, rate, inverse_root_correction,
      eps;
};

inline AdamwScalars adamw_scalars(double gradient_scale, double learning_rate, std::int64_t update,
                                  const AdamwOptions& options) {
  const double t = static_cast<double>(update);
  const double correction1 = 1.0 - std::pow(options.beta1, t);
  const double correction2 = 1.0 - std::pow(options.beta2, t);
  AdamwScalars s;
  s.gradient_scale = static_cast<float>(gradient_scale);
  s.keep = static_cast<float>(1.0 - learning_rate * options.weight_decay);
  s.beta1 = static_cast<float>(options.beta1);
  s.one_minus_beta1 = static_cast<float>(1.0 - options.beta1);
  s.beta2 = static_cast<float>(options.beta2);
  s.one_minus_beta2 = static_cast<float>(1.0 - options.beta2);
  s.rate = static_cast<float>(learning_rate / correction1);
  s.inverse_root_correction = static_cast<float>(1.0 / std::sqrt(correction2));
  s.eps = static_cast<float>(options.eps);
  return s;
}

}  // namespace eaglet
