#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "formats/target_model.h"

namespace eaglet {

/// From a teacher's probabilities back to the state behind them. p = softmax(W h) over a draft vocabulary of
/// at least `width` ids says W h up to a constant, so h is a least-squares solution; h = x / rms(x) * g gives
/// the direction of the last state x, which is all that norm and head read. docs/math/teacher_inverse.md
class TeacherInverse {
 public:
  /// `ids`: the target ids of the probabilities, in their order. kConfig: fewer than width ids, ids out of
  /// range, or rows of the head that do not determine a state. Cost: once width^3 operations.
  static Result<TeacherInverse> create(const TargetWeights& weights, std::int64_t width,
                                       const std::vector<std::int32_t>& ids);
  std::int64_t width() const { return width_; }
  std::int64_t ids() const { return ids_; }
  /// probabilities [rows, ids] > 0 -> states [rows, width] before the final norm, of root mean square
  /// about 1. *misfit: mean distance in nats between the logarithms that come out and those that were given;
  /// large when the probabilities are not this target's. kDataLoss naming the first row with a zero in it.
  Status solve(const std::vector<float>& probabilities, std::int64_t rows, std::vector<float>* states,
               double* misfit) const;

 private:
  std::int64_t width_ = 0, ids_ = 0;
  std::vector<float> head_;     // [ids, width], the mean over ids taken out
  std::vector<float> inverse_;  // [width, width]: of head^T head
  std::vector<float> norm_;     // [width]
};

}  // namespace eaglet
