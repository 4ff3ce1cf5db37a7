#include "train/step_metrics.h"

namespace eaglet {

StepMetrics step_metrics(const StepSums& sums, const TttOptions& options) {
  StepMetrics metrics;
  metrics.acceptance_length = 1;
  double outside = 0, counted = 0;
  for (const DepthSums& depth : sums.depth) {
    metrics.loss.push_back(depth.loss / (depth.counted + 1e-5));
    metrics.full_acc.push_back(depth.counted > 0 ? depth.full_right / depth.counted : 0);
    metrics.cond_acc.push_back(depth.cond_total > 0 ? depth.cond_right / depth.cond_total : 0);
    metrics.acceptance_length += metrics.full_acc.back();
    outside += depth.outside;
    counted += depth.counted;
  }
  if (!sums.depth.empty()) metrics.supervised_tokens = sums.depth.front().counted;
  metrics.outside_share = counted > 0 ? outside / counted : 0;
  metrics.total_loss = sums.loss(options);
  return metrics;
}

void add_sums(const StepSums& more, StepSums* total) {
  if (total->depth.size() < more.depth.size()) total->depth.resize(more.depth.size());
  for (std::size_t k = 0; k < more.depth.size(); ++k) {
    total->depth[k].loss += more.depth[k].loss;
    total->depth[k].counted += more.depth[k].counted;
    total->depth[k].full_right += more.depth[k].full_right;
    total->depth[k].cond_right += more.depth[k].cond_right;
    total->depth[k].cond_total += more.depth[k].cond_total;
    total->depth[k].outside += more.depth[k].outside;
  }
}

void put_metrics(const StepMetrics& metrics, LogRecord* record) {
  record->loss = metrics.loss;
  record->full_acc = metrics.full_acc;
  record->cond_acc = metrics.cond_acc;
  record->total_loss = metrics.total_loss;
  record->supervised_tokens = metrics.supervised_tokens;
  record->outside_share = metrics.outside_share;
  record->acceptance_length = metrics.acceptance_length;
}

Validation to_validation(const StepMetrics& metrics, std::int64_t step) {
  return {step,         metrics.acceptance_length, metrics.total_loss,
          metrics.loss, metrics.full_acc,          metrics.cond_acc};
}

}  // namespace eaglet
