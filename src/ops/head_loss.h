#pragma once

#include <cstdint>
#include <vector>

#include "device/linear_weight.h"
#include "ops/loss_kind.h"
#include "ops/loss_row.h"

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
  /// V: teacher probabilities are normalised over the whole vocabulary (their sum over the draft vocabulary
  /// is below 1, so rows whose mass lies outside weigh less); 0: over the draft vocabulary.
  std::int64_t whole_vocab = 0;
};

/// On a device the float arrays lie in its memory, and the heads' weights; what is said of loss, best and
/// teacher_best below is for the host to read and lies in its memory.
struct HeadLossInputs {
  std::int64_t num_teachers = 0;
  const float* teacher_states = nullptr;                  // [num_teachers, Ht], after the verifier's norm
  const LinearWeight* verifier_head = nullptr;            // [Vd, Ht]; not read with whole_vocab
  const float* whole_verifier_head = nullptr;             // [V, Ht], whole_vocab only
  const std::int32_t* draft_to_target = nullptr;          // [Vd] rows of it, whole_vocab only
  const LinearWeight* head = nullptr;                     // [Vd, H]
  std::vector<const float*> xs;                           // [K] arrays [entries_k, H]: normed draft states
  std::vector<const std::vector<std::int32_t>*> teacher;  // [K] arrays [entries_k], ascending
  std::vector<const std::vector<float>*>
      weight;  // [K] arrays [entries_k]: d total / d loss of the entry; 0 = metric only
};

struct HeadLossOutputs {
  std::vector<float*> loss;                    // [K] arrays [entries_k]
  std::vector<std::int32_t*> best;             // [K] arrays [entries_k]: draft's argmax (draft id)
  std::int32_t* teacher_best = nullptr;        // [num_teachers]: draft id
  std::int32_t* teacher_best_whole = nullptr;  // [num_teachers]: target id; written with whole_vocab only
  std::vector<float*> d_xs;  // [K] arrays [entries_k, H], overwritten; empty = no gradients wanted. May
                             // be the arrays xs.
  float* d_head = nullptr;   // [Vd, H] added to; nullptr = frozen
};

/// Teacher rows of one chunk, and floats of scratch for the whole op on `threads` threads.
std::int64_t head_loss_chunk(const HeadLossShape& shape);
std::int64_t head_loss_scratch_floats(const HeadLossShape& shape, int threads);

/// Lists that head_loss() fills anew for every chunk; kept by the caller so that a step allocates nothing.
struct HeadLossWorkspace {
  std::vector<std::int64_t> begin, end, offset;
  std::vector<TeacherRow> teachers;
};

void head_loss(const HeadLossShape& shape, const std::vector<LossTerm>& terms, const HeadLossInputs& in,
               const HeadLossOutputs& out, float* scratch, HeadLossWorkspace* workspace);

/// Index of the largest of each row's logits over a whole vocabulary: states [n, width] times head [vocab,
/// width]. `scratch`: best_over_vocab_scratch_floats(vocab).
void best_over_vocab(std::int64_t n, std::int64_t width, std::int64_t vocab, const float* states,
                     const float* head, std::int32_t* best, float* scratch);
std::int64_t best_over_vocab_scratch_floats(std::int64_t vocab);

}  // namespace eaglet
