#pragma once

#include <cstdint>
#include <vector>

#include "batch/packed_batch.h"
#include "draft/draft_model.h"
#include "evaluate/evaluate.h"

namespace eaglet {

/// What a sampling server accepts: at a temperature, a drafted token is kept with probability sum min(p, q)
/// over the whole vocabulary (p target, q draft; outside the draft's vocabulary q is 0).
struct OverlapInputs {
  double temperature = 1.0;                   // > 0, of both
  std::int64_t target_hidden = 0, vocab = 0;  // Ht, V
  const float* final_norm = nullptr;          // [Ht]
  const float* lm_head = nullptr;             // [V, Ht]
  double rms_norm_eps = 1e-5;
  const std::vector<std::int32_t>* draft_ids = nullptr;  // [Vd] target id of each draft token
};

/// Adds the sums of one batch to report->depth[k].overlap: over supervised rows p whose row p+k is supervised
/// and of the same document. `predictions` must have logits.
void add_overlap(const PackedBatch& batch, const Predictions& predictions, const OverlapInputs& inputs,
                 EvaluateReport* report);

}  // namespace eaglet
