#pragma once

#include <cstdint>
#include <vector>

#include "ops/loss_kind.h"

namespace eaglet {

/// The draft's head and the loss of all drafting steps, fused in chunks of teacher rows
/// (docs/math/head_loss.md): no [rows, Vd] tensor exists, a teacher row's probabilities are made once and
/// shared by all steps.
///
/// Entry (step k, e): query row of xs[k] against teacher row `teacher[k][e]`; entries of a step are sorted by
/// teacher row.
struct HeadLossShape {
  std::int64_t hidden = 0, target_hidden = 0, draft_vocab = 0;  // H, Ht, Vd
  std::int64_t steps = 0;                                       // K
};

struct HeadLossInputs {
  std::int64_t num_teachers = 0;
  const float* teacher_states = nullptr;                  // [num_teachers, Ht], after the verifier's norm
  const float* verifier_head = nullptr;                   // [Vd, Ht]
  const float* head = nullptr;                            // [Vd, H]
  std::vector<const float*> xs;                           // [K] arrays [entries_k, H]: normed draft states
  std::vector<const std::vector<std::int32_t>*> teacher;  // [K] arrays [entries_k], ascending
  std::vector<const std::vector<float>*>
      weight;  // [K] arrays [entries_k]: d total / d loss of the entry; 0 = metric only
};

struct HeadLossOutputs {
  std::vector<float*> loss;              // [K] arrays [entries_k]
  std::vector<std::int32_t*> best;       // [K] arrays [entries_k]: draft's argmax (draft id)
  std::int32_t* teacher_best = nullptr;  // [num_teachers]: draft id
  std::vector<float*> d_xs;  // [K] arrays [entries_k, H], overwritten; empty = no gradients wanted
  float* d_head = nullptr;   // [Vd, H] added to; nullptr = frozen
};

/// Teacher rows of one chunk, and floats of scratch for the whole op on `threads` threads.
std::int64_t head_loss_chunk(const HeadLossShape& shape);
std::int64_t head_loss_scratch_floats(const HeadLossShape& shape, int threads);

void head_loss(const HeadLossShape& shape, const std::vector<LossTerm>& terms, const HeadLossInputs& in,
               const HeadLossOutputs& out, float* scratch);

/// Index of the largest of each row's logits over a whole vocabulary: states [n, width] times head [vocab,
/// width]. `scratch`: best_over_vocab_scratch_floats(vocab).
void best_over_vocab(std::int64_t n, std::int64_t width, std::int64_t vocab, const float* states,
                     const float* head, std::int32_t* best, float* scratch);
std::int64_t best_over_vocab_scratch_floats(std::int64_t vocab);

}  // namespace eaglet
