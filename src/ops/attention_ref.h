#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace eaglet::ref {

/// attention.h in plain loops on any number type, one query row and head at a time. `keys` and `values` are
/// what the query sees (step-0 keys in its window, then its own keys of later steps), each [head_dim].
template <class T>
std::vector<T> attention_row(const std::vector<T>& query, const std::vector<std::vector<T>>& keys,
                             const std::vector<std::vector<T>>& values) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size()));
  std::vector<T> weights;
  T sum(0);
  for (const std::vector<T>& key : keys) {
    T score(0);
    for (std::size_t i = 0; i < query.size(); ++i) score += query[i] * key[i];
    weights.push_back(std::exp(score * T(scale)));  // test inputs are small: no shift by the largest
    sum += weights.back();
  }
  std::vector<T> out(query.size(), T(0));
  for (std::size_t j = 0; j < values.size(); ++j)
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += weights[j] / sum * values[j][i];
  return out;
}

}  // namespace eaglet::ref
