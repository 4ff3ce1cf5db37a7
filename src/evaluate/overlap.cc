#include "evaluate/overlap.h"

#include <algorithm>
#include <cmath>

#include "device/gemm.h"
#include "ops/rms_norm.h"

namespace eaglet {
namespace {

constexpr std::int64_t kTeacherRows = 16;  // logits over the whole vocabulary that exist at once

/// Logits to probabilities at a temperature, in place.
void soften(float* logits, std::int64_t n, double temperature) {
  float most = logits[0];
  for (std::int64_t i = 1; i < n; ++i) most = std::max(most, logits[i]);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    logits[i] = static_cast<float>(std::exp((logits[i] - most) / temperature));
    sum += logits[i];
  }
  const auto scale = static_cast<float>(1.0 / sum);
  for (std::int64_t i = 0; i < n; ++i) logits[i] *= scale;
}

/// Sum of min(p, q) of one row; negative when the draft was not computed there.
double row_overlap(const float* p, const float* draft_logits, const std::vector<std::int32_t>& ids,
                   double temperature, std::vector<float>* q) {
  if (std::isnan(draft_logits[0])) return -1;
  q->assign(draft_logits, draft_logits + ids.size());
  soften(q->data(), static_cast<std::int64_t>(ids.size()), temperature);
  double sum = 0;
  for (std::size_t d = 0; d < ids.size(); ++d) sum += std::min(p[ids[d]], (*q)[d]);
  return sum;
}

}  // namespace

void add_overlap(const PackedBatch& batch, const Predictions& predictions, const OverlapInputs& in,
                 EvaluateReport* report) {
  const std::vector<std::int32_t>& ids = *in.draft_ids;
  const auto steps = static_cast<std::int64_t>(report->depth.size());
  std::vector<std::int64_t> rows;  // supervised ones: each is a teacher
  for (std::int64_t r = 0; r < batch.rows; ++r)
    if (batch.loss_mask[static_cast<std::size_t>(r)] != 0 &&
        batch.document_ids[static_cast<std::size_t>(r)] >= 0)
      rows.push_back(r);
  std::vector<float> states(static_cast<std::size_t>(kTeacherRows * in.target_hidden)),
      inverse(static_cast<std::size_t>(kTeacherRows)),
      logits(static_cast<std::size_t>(kTeacherRows * in.vocab)), q;
  for (std::size_t first = 0; first < rows.size(); first += kTeacherRows) {
    const std::int64_t n =
        std::min<std::int64_t>(kTeacherRows, static_cast<std::int64_t>(rows.size() - first));
    for (std::int64_t i = 0; i < n; ++i)
      std::copy_n(
          batch.last_hidden_states.data() + rows[first + static_cast<std::size_t>(i)] * in.target_hidden,
          in.target_hidden, states.data() + i * in.target_hidden);
    rms_norm(n, in.target_hidden, states.data(), in.target_hidden, in.final_norm, in.rms_norm_eps,
             states.data(), in.target_hidden, inverse.data());
    gemm(Transpose::kNo, Transpose::kYes, n, in.vocab, in.target_hidden, 1.0f, states.data(),
         in.target_hidden, in.lm_head, in.target_hidden, 0.0f, logits.data(), in.vocab);
    for (std::int64_t i = 0; i < n; ++i) {
      float* p = logits.data() + i * in.vocab;
      soften(p, in.vocab, in.temperature);
      const std::int64_t teacher = rows[first + static_cast<std::size_t>(i)];
      for (std::int64_t k = 0; k < steps && teacher - k >= 0; ++k) {
        const std::int64_t start = teacher - k;
        const auto at = static_cast<std::size_t>(start);
        if (batch.loss_mask[at] == 0 ||
            batch.document_ids[at] != batch.document_ids[static_cast<std::size_t>(teacher)])
          continue;
        const float* draft =
            predictions.logits.data() + (k * batch.rows + start) * static_cast<std::int64_t>(ids.size());
        const double sum = row_overlap(p, draft, ids, in.temperature, &q);
        if (sum < 0) continue;
        DepthAcceptance& depth = report->depth[static_cast<std::size_t>(k)];
        depth.overlap += sum;
        depth.overlap_rows += 1;
      }
    }
  }
}

}  // namespace eaglet
