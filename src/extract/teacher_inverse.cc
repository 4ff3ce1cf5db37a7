#include "extract/teacher_inverse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "device/gemm.h"

namespace eaglet {
namespace {

constexpr std::int64_t kSummedRows = 1024;  // rows of the head whose products are summed in fp32
constexpr int kRefinements = 2;             // each takes the rounding of the one before out again

/// a := inverse of the positive definite a [n, n] by Cholesky's factors. False when it is none.
bool invert(std::vector<double>* a, std::int64_t n) {
  double* l = a->data();
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, l[i * n + i]);
  for (std::int64_t j = 0; j < n; ++j) {
    double pivot = l[j * n + j];
    for (std::int64_t k = 0; k < j; ++k) pivot -= l[j * n + k] * l[j * n + k];
    if (!(pivot > 1e-10 * largest)) return false;
    const double root = std::sqrt(pivot);
    l[j * n + j] = root;
    for (std::int64_t i = j + 1; i < n; ++i) {
      double sum = l[i * n + j];
      for (std::int64_t k = 0; k < j; ++k) sum -= l[i * n + k] * l[j * n + k];
      l[i * n + j] = sum / root;
    }
  }
  // The triangle's inverse in place (row by row, from the diagonal), then its transpose times itself.
  std::vector<double> inverse(static_cast<std::size_t>(n * n), 0.0);
  for (std::int64_t i = 0; i < n; ++i) {
    double* row = inverse.data() + i * n;
    for (std::int64_t k = 0; k < i; ++k) {
      const double factor = l[i * n + k];
      const double* other = inverse.data() + k * n;
      for (std::int64_t j = 0; j <= k; ++j) row[j] -= factor * other[j];
    }
    row[i] += 1;
    for (std::int64_t j = 0; j <= i; ++j) row[j] /= l[i * n + i];
  }
  std::fill(a->begin(), a->end(), 0.0);
  for (std::int64_t k = 0; k < n; ++k) {
    const double* row = inverse.data() + k * n;
    for (std::int64_t i = 0; i <= k; ++i)
      for (std::int64_t j = 0; j <= k; ++j) l[i * n + j] += row[i] * row[j];
  }
  return true;
}

/// Takes the mean of each row out.
void center(std::vector<float>* rows, std::int64_t count, std::int64_t width) {
  for (std::int64_t r = 0; r < count; ++r) {
    float* row = rows->data() + r * width;
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += row[i];
    const auto mean = static_cast<float>(sum / static_cast<double>(width));
    for (std::int64_t i = 0; i < width; ++i) row[i] -= mean;
  }
}

}  // namespace

Result<TeacherInverse> TeacherInverse::create(const TargetWeights& weights, std::int64_t width,
                                              const std::vector<std::int32_t>& ids) {
  const auto refuse = [](const std::string& what) {
    return Status(StatusCode::kConfig, what, "--from nemo",
                  "extract the states again from the conversations with the target");
  };
  TeacherInverse made;
  made.width_ = width;
  made.ids_ = static_cast<std::int64_t>(ids.size());
  const std::vector<float>& head = weights.head();
  const std::int64_t vocab = static_cast<std::int64_t>(head.size()) / width;
  if (made.ids_ <= width)
    return refuse(
        fmt::format("the probabilities of {} tokens do not tell a state of width {}", made.ids_, width));
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab)
      return refuse(fmt::format("the cache's token {} is outside the target's vocabulary of {}", id, vocab));
    made.head_.insert(made.head_.end(), head.begin() + id * width, head.begin() + (id + 1) * width);
  }
  // The unknown constant is the mean over ids: without it in the head and in the logarithms, it is gone.
  std::vector<double> mean(static_cast<std::size_t>(width), 0.0);
  for (std::int64_t i = 0; i < made.ids_ * width; ++i)
    mean[static_cast<std::size_t>(i % width)] += made.head_[static_cast<std::size_t>(i)];
  for (std::int64_t i = 0; i < made.ids_ * width; ++i)
    made.head_[static_cast<std::size_t>(i)] -=
        static_cast<float>(mean[static_cast<std::size_t>(i % width)] / static_cast<double>(made.ids_));
  std::vector<double> normal(static_cast<std::size_t>(width * width), 0.0);
  std::vector<float> part(normal.size());
  for (std::int64_t first = 0; first < made.ids_; first += kSummedRows) {
    const float* rows = made.head_.data() + first * width;
    gemm(Transpose::kYes, Transpose::kNo, width, width, std::min(kSummedRows, made.ids_ - first), 1, rows,
         width, rows, width, 0, part.data(), width);
    for (std::size_t i = 0; i < normal.size(); ++i) normal[i] += part[i];
  }
  if (!invert(&normal, width))
    return refuse("the cache's tokens do not determine a state: rows of the head are alike");
  made.inverse_.assign(normal.begin(), normal.end());
  made.norm_ = weights.final_norm;
  if (std::find(made.norm_.begin(), made.norm_.end(), 0.0f) != made.norm_.end())
    return refuse("the target's final norm holds a zero: a normed state cannot be undone");
  return made;
}

Status TeacherInverse::solve(const std::vector<float>& probabilities, std::int64_t rows,
                             std::vector<float>* states, double* misfit) const {
  std::vector<float> left(probabilities.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!(probabilities[i] > 0) || !std::isfinite(probabilities[i]))
      return Status(StatusCode::kDataLoss,
                    fmt::format("row {} holds a probability of {}: it was stored in too narrow a type",
                                static_cast<std::int64_t>(i) / ids_, probabilities[i]));
    left[i] = std::log(probabilities[i]);
  }
  center(&left, rows, ids_);
  states->assign(static_cast<std::size_t>(rows * width_), 0.0f);
  std::vector<float> seen(states->size());
  for (int round = 0; round <= kRefinements; ++round) {
    gemm(Transpose::kNo, Transpose::kNo, rows, width_, ids_, 1, left.data(), ids_, head_.data(), width_, 0,
         seen.data(), width_);
    // states += seen * inverse, and left loses what that explains.
    std::vector<float> step(states->size());
    gemm(Transpose::kNo, Transpose::kNo, rows, width_, width_, 1, seen.data(), width_, inverse_.data(),
         width_, 0, step.data(), width_);
    for (std::size_t i = 0; i < step.size(); ++i) (*states)[i] += step[i];
    gemm(Transpose::kNo, Transpose::kYes, rows, ids_, width_, -1, step.data(), width_, head_.data(), width_,
         1, left.data(), ids_);
  }
  double sum = 0;
  for (const float l : left) sum += std::fabs(l);
  *misfit = left.empty() ? 0 : sum / static_cast<double>(left.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < width_; ++i)
      (*states)[static_cast<std::size_t>(r * width_ + i)] /= norm_[static_cast<std::size_t>(i)];
  return {};
}

}  // namespace eaglet
