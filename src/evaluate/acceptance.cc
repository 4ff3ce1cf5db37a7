#include "evaluate/acceptance.h"

#include "evaluate/walk.h"

namespace eaglet {
namespace {

// Supervised rows that are right at steps 0..k, the row p+k being supervised too.
void add_chains(const PackedBatch& batch, const std::vector<std::vector<std::uint8_t>>& right,
                double DepthAcceptance::*sum, EvaluateReport* report) {
  for (std::size_t p = 0; p < static_cast<std::size_t>(batch.rows); ++p) {
    if (batch.loss_mask[p] == 0 || batch.document_ids[p] < 0) continue;
    for (std::size_t k = 0; k < right.size() && right[k][p] != 0 && batch.loss_mask[p + k] != 0; ++k)
      report->depth[k].*sum += 1;
  }
}

void count_outside(const PackedBatch& batch, const Predictions& predictions, double supervised,
                   EvaluateReport* report) {
  for (std::size_t p = 0; p < static_cast<std::size_t>(batch.rows);
       ++p) {  // counts until finish_acceptance() divides them
    if (batch.loss_mask[p] == 0) continue;
    report->teacher_best_outside_share +=
        predictions.teacher_best[p] != predictions.teacher_best_full[p] ? 1 : 0;
    const bool last =
        p + 1 == static_cast<std::size_t>(batch.rows) || batch.document_ids[p + 1] != batch.document_ids[p];
    report->answer_is_target_best_share +=
        last || predictions.teacher_best_full[p] == batch.input_ids[p + 1] ? 1 : 0;
  }
  report->supervised_tokens += static_cast<std::int64_t>(supervised);
}

}  // namespace

Status add_acceptance(DraftModel& model, int steps, const PackedBatch& batch, const OverlapInputs* overlap,
                      EvaluateReport* report) {
  report->depth.resize(static_cast<std::size_t>(steps));
  if (report->walked.empty())
    for (int n = 1; n <= steps; ++n) report->walked.push_back(WalkedAcceptance{n, 0, 0, 0, {}});
  const DraftInputs inputs{batch.rows,
                           batch.input_ids.data(),
                           batch.document_ids.data(),
                           batch.position_ids.data(),
                           batch.loss_mask.data(),
                           batch.aux_hidden_states.data(),
                           batch.last_hidden_states.data()};
  Predictions predictions;
  predictions.with_logits = overlap != nullptr;
  EAGLET_ASSIGN_OR_RETURN(const StepSums sums, model.step(inputs, false, &predictions));
  const double supervised = sums.depth[0].counted;
  for (std::size_t k = 0; k < report->depth.size(); ++k) {
    report->depth[k].loss += sums.depth[k].loss;
    report->depth[k].counted += sums.depth[k].counted;
    report->depth[k].total += supervised;
  }
  add_chains(batch, right_marks(batch, predictions, steps, Judge::kTargetBest), &DepthAcceptance::right,
             report);
  add_chains(batch, right_marks(batch, predictions, steps, Judge::kDraftVocabBest),
             &DepthAcceptance::right_in_vocab, report);
  count_outside(batch, predictions, supervised, report);
  if (overlap != nullptr) add_overlap(batch, predictions, *overlap, report);
  const auto as_written = right_marks(batch, predictions, steps, Judge::kAnswer);
  for (WalkedAcceptance& walked : report->walked) walk(batch, as_written, &walked);
  return {};
}

void finish_acceptance(EvaluateReport* report) {
  report->acceptance_length = 1.0;
  for (DepthAcceptance& depth : report->depth) {
    depth.loss /= depth.counted + 1e-5;
    if (depth.total > 0) report->acceptance_length += depth.right / depth.total;
  }
  if (report->supervised_tokens == 0) return;
  report->teacher_best_outside_share /= static_cast<double>(report->supervised_tokens);
  report->answer_is_target_best_share /= static_cast<double>(report->supervised_tokens);
}

}  // namespace eaglet
