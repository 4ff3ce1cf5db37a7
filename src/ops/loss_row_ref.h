#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "ops/loss_kind.h"

namespace eaglet::ref {

// The losses of loss_kind.h on one row, from logits, on any number type. Comparisons look at real parts only,
// so a complex step gives the exact derivative. lk_hybrid's l is taken from `frozen` logits (no gradient
// flows through it).

inline double real_part(double x) {
  return x;
}
inline double real_part(const std::complex<double>& x) {
  return x.real();
}

template <class T>
std::vector<T> log_softmax(const std::vector<T>& z) {
  double best = real_part(z[0]);
  for (const T& value : z) best = std::max(best, real_part(value));
  T sum(0);
  for (const T& value : z) sum += std::exp(value - best);
  const T lse = best + std::log(sum);
  std::vector<T> out;
  for (const T& value : z) out.push_back(value - lse);
  return out;
}

template <class T>
T overlap(const std::vector<double>& log_p, const std::vector<T>& log_q) {
  T a(0);
  for (std::size_t i = 0; i < log_p.size(); ++i)
    a += log_p[i] < real_part(log_q[i]) ? T(std::exp(log_p[i])) : std::exp(log_q[i]);
  return a;
}

template <class T>
T kl(const std::vector<double>& log_p, const std::vector<T>& log_q) {
  T sum(0);
  for (std::size_t i = 0; i < log_p.size(); ++i) sum += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
  return sum;
}

/// log_p may add up to less than 1: a teacher normalised over more than these tokens.
template <class T>
T loss_of_log_p(LossKind kind, const std::vector<double>& log_p, const std::vector<T>& log_q) {
  const auto best = static_cast<std::size_t>(std::max_element(log_p.begin(), log_p.end()) - log_p.begin());
  T sum(0);
  switch (kind) {
    case LossKind::kKl:
      return kl(log_p, log_q);
    case LossKind::kRkl:
      for (std::size_t i = 0; i < log_p.size(); ++i) sum += std::exp(log_q[i]) * (log_q[i] - log_p[i]);
      return sum;
    case LossKind::kJsd:
      for (std::size_t i = 0; i < log_p.size(); ++i) {
        const T p(std::exp(log_p[i])), q = std::exp(log_q[i]);
        const T log_mean = std::log(T(0.5) * (p + q));
        sum += T(0.5) * (p * (log_p[i] - log_mean) + q * (log_q[i] - log_mean));
      }
      return sum;
    case LossKind::kCe:
      return -log_q[best];
    case LossKind::kTv:
      return T(1) - overlap(log_p, log_q);
    case LossKind::kNla: {
      const T a = overlap(log_p, log_q);
      return -std::log(real_part(a) > 1e-5 ? a : T(1e-5));
    }
    case LossKind::kLkHybrid: {
      const T a = overlap(log_p, log_q);
      const double l = std::exp(-3.0 * real_part(a));
      return T(l) * kl(log_p, log_q) + T(1 - l) * (T(1) - a);
    }
  }
  return sum;
}

template <class T>
T loss_row(LossKind kind, const std::vector<double>& teacher_logits, const std::vector<T>& draft_logits) {
  return loss_of_log_p(kind, log_softmax(teacher_logits), log_softmax(draft_logits));
}

}  // namespace eaglet::ref
