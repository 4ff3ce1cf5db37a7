#pragma once

#include <cmath>
#include <cstdint>

namespace eaglet::ref {

/// One row of rms_norm.h, on any number type (complex numbers give derivatives by a complex step).
template <class T>
void rms_norm_row(std::int64_t width, const T* x, const T* w, double eps, T* y) {
  T sum(0);
  for (std::int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
  const T inv = T(1) / std::sqrt(sum / T(static_cast<double>(width)) + T(eps));
  for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * inv * w[i];
}

}  // namespace eaglet::ref
