#pragma once

#include <cmath>
#include <cstdint>

namespace eaglet::ref {

// Plain loops for vector_math.h, templated on the number type.

template <class T>
T exp_sum(const T* x, std::int64_t n, T scale, T shift, T* y) {
  T sum(0);
  for (std::int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(scale * x[i] - shift);
  return sum;
}

template <class T>
T dot(const T* x, const T* y, std::int64_t n) {
  T sum(0);
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

template <class T>
T silu(T g) {
  return g / (T(1) + std::exp(-g));
}

}  // namespace eaglet::ref
