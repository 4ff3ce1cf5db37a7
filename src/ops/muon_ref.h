#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "ops/muon.h"

namespace eaglet {

/// newton_schulz() in plain loops, always with A = x x^T: a tall matrix is transposed by its caller's
/// reading.
template <class T>
std::vector<T> newton_schulz_ref(std::size_t rows, std::size_t columns, int steps, std::vector<T> x) {
  T sum = 0;
  for (const T v : x) sum += v * v;
  const T norm = std::max(std::sqrt(sum), T(kNewtonSchulzEps));
  for (T& v : x) v /= norm;
  const auto [a, b, c] = kNewtonSchulz;
  for (int s = 0; s < steps; ++s) {
    std::vector<T> gram(rows * rows, T(0)), polynomial(rows * rows, T(0)), next(rows * columns, T(0));
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < rows; ++j)
        for (std::size_t k = 0; k < columns; ++k)
          gram[i * rows + j] += x[i * columns + k] * x[j * columns + k];
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < rows; ++j) {
        T square = 0;
        for (std::size_t k = 0; k < rows; ++k) square += gram[i * rows + k] * gram[k * rows + j];
        polynomial[i * rows + j] = T(b) * gram[i * rows + j] + T(c) * square;
      }
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) {
        T product = 0;
        for (std::size_t k = 0; k < rows; ++k) product += polynomial[i * rows + k] * x[k * columns + j];
        next[i * columns + j] = T(a) * x[i * columns + j] + product;
      }
    x = std::move(next);
  }
  return x;
}

/// muon() in plain loops.
template <class T>
void muon_ref(std::size_t rows, std::size_t columns, std::vector<T>* w, const std::vector<T>& g,
              std::vector<T>* momentum, T scale, T rate, const MuonOptions& o) {
  std::vector<T> update(rows * columns);
  const T keep = T(o.momentum), take = T(1) - T(o.momentum);
  for (std::size_t i = 0; i < update.size(); ++i) {
    (*momentum)[i] = keep * (*momentum)[i] + take * g[i] * scale;
    update[i] = o.nesterov ? keep * (*momentum)[i] + take * g[i] * scale : (*momentum)[i];
  }
  update = newton_schulz_ref(rows, columns, o.ns_steps, update);
  const T step =
      rate * T(muon_rate_factor(o.rate, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)));
  for (std::size_t i = 0; i < update.size(); ++i)
    (*w)[i] = (*w)[i] * (T(1) - rate * T(o.weight_decay)) - step * update[i];
}

}  // namespace eaglet
