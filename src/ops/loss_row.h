#pragma once

#include <cstdint>
#include <vector>

#include "ops/loss_kind.h"

namespace eaglet {

/// A teacher row turned into what every loss needs of it. `p` [n] are its probabilities.
struct TeacherRow {
  const float* p = nullptr;
  float entropy_term = 0;  // sum p log p
  float log_sum_exp = 0;   // of its logits: log p_i = logit_i - log_sum_exp
  const float* logits = nullptr;
  std::int64_t best = 0;         // argmax
  float mass = 1;                // sum of p: below 1 when normalised over the whole vocabulary
  bool best_is_outside = false;  // the best token of the whole vocabulary is not in the draft's
};

/// Turns teacher logits [n] into probabilities `p` [n] (another array) and the facts above.
TeacherRow teacher_row(const float* logits, std::int64_t n, float* p);

/// The same where `log_sum_exp` is that of the whole vocabulary: the probabilities add up to `mass` <= 1.
TeacherRow teacher_row_of_whole(const float* logits, std::int64_t n, float log_sum_exp, float* p);

/// Loss of one row, and its gradient in place: z [n] draft logits in; `gradient_weight` * d loss / d z out
/// (zeros when the weight is 0). `best` becomes the draft's argmax. `terms` are weighted and added up.
/// `scratch` [2n], not used when only kl is asked for. ce of a row whose teacher's best token lies outside
/// the draft vocabulary is 0 when that is known (whole vocabulary). Source: docs/math/losses.md. Reference:
/// loss_row_ref.h.
float loss_row(const std::vector<LossTerm>& terms, const TeacherRow& teacher, std::int64_t n,
               float gradient_weight, float* z, float* scratch, std::int64_t* best);

}  // namespace eaglet
