#pragma once

#include <vector>

#include "draft/draft_model.h"
#include "runlog/log_record.h"
#include "train/trainer_state.h"

namespace eaglet {

/// Sums over rows turned into what trainers print, by depth.
struct StepMetrics {
  std::vector<double> loss, full_acc, cond_acc;
  double total_loss = 0, acceptance_length = 0;
  double supervised_tokens = 0;  // rows whose loss counts at depth 0
  double outside_share = 0;  // of the counted rows: what they should say is not in the draft vocabulary
};

/// loss_k = sum / (count + 1e-5) as in speculators; shares of nothing are 0.
StepMetrics step_metrics(const StepSums& sums, const TttOptions& options);

/// Adds the sums of one more batch (sum over all, divided by the count over all).
void add_sums(const StepSums& more, StepSums* total);

void put_metrics(const StepMetrics& metrics, LogRecord* record);
Validation to_validation(const StepMetrics& metrics, std::int64_t step);

}  // namespace eaglet
