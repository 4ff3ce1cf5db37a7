#pragma once

// For the tests of this room: small random arrays, and derivatives by a complex step.

#include <complex>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace eaglet::test {

using Complex = std::complex<double>;

inline std::vector<float> random_floats(std::int64_t n, std::uint64_t stream, double deviation = 1.0) {
  Rng rng(1234, stream);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(deviation * rng.normal());
  return values;
}

template <class T>
std::vector<T> widen(const std::vector<float>& values) {
  std::vector<T> out;
  for (const float v : values) out.push_back(T(static_cast<double>(v)));
  return out;
}

/// d f / d x_i for every i: imag(f(x + i*h e_i)) / h, exact to rounding since nothing is subtracted (Squire
/// and Trapp 1998).
template <class Function>
std::vector<double> complex_step_gradient(const Function& f, std::vector<Complex> x) {
  constexpr double kStep = 1e-50;
  std::vector<double> gradient;
  for (Complex& value : x) {
    const Complex kept = value;
    value += Complex(0, kStep);
    gradient.push_back(f(x).imag() / kStep);
    value = kept;
  }
  return gradient;
}

/// |a - b| / |b|, 0 when both are 0.
template <class A, class B>
double relative_difference(const std::vector<A>& a, const std::vector<B>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

}  // namespace eaglet::test
