#include "train/planned_batches.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/interrupt.h"
#include "train/train_data.h"

namespace eaglet {

Result<PlannedBatches> planned_batches(const TrainOptions& options, const TargetFacts& target,
                                       std::size_t most) {
  EAGLET_ASSIGN_OR_RETURN(const TrainData data, open_train_data(options, target));
  const PackingReport& report = data.training_plan.report();
  const std::vector<std::vector<std::size_t>> epoch = data.training_plan.epoch(0);
  PlannedBatches planned;
  planned.batches = report.batches;
  // States that are not there yet will be bf16.
  if (data.store->stored_form() != StateForm::kF32) planned.form = data.store->stored_form();
  if (options.noise_std > 0) planned.form = StateForm::kF32;
  const auto tokens = static_cast<double>(report.real_tokens);
  planned.tokens = tokens / static_cast<double>(report.batches);
  planned.document_tokens = tokens / static_cast<double>(report.documents) + 1;  // a document has a row less
  planned.supervised_share = std::min(1.0, static_cast<double>(report.supervised_tokens) / tokens);
  const std::size_t n = std::min(most, epoch.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (interrupted()) return Status(StatusCode::kInterrupted, "stopped while planning; nothing was begun");
    TokenRows rows;
    EAGLET_RETURN_IF_ERROR(
        fill_token_rows(*data.store, epoch[i * epoch.size() / n], options.max_seq_len, &rows));
    planned.rows.push_back(std::move(rows));
  }
  return planned;
}

}  // namespace eaglet
