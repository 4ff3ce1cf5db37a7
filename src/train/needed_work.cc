#include "train/needed_work.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "device/gemm.h"

namespace eaglet {

double NeededWork::layer_flops(const ChunkPlan& plan) const {
  const auto h = static_cast<double>(config_.hidden), f = static_cast<double>(config_.intermediate);
  const auto q = static_cast<double>(config_.num_heads * config_.head_dim);
  const auto kv = static_cast<double>(config_.num_kv_heads * config_.head_dim);
  const auto keys = static_cast<double>(plan.keys);
  double key_positions = 0;
  for (const std::int32_t position : plan.key_positions) key_positions += position;
  double total = 0;
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    const ChunkPlan::Step& step = plan.steps[k];
    // A row at rotary position i sees i keys: those of step 0 up to itself and its own of every later step.
    double positions = 0;
    for (const std::int32_t position : step.positions) positions += position;
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
      // Below the last layer every key row is computed at step 0; the embedding half of layer 0's input is
      // projected once.
      const bool all_rows = k == 0 && layer + 1 < config_.num_layers;
      const double rows = all_rows ? keys : static_cast<double>(step.live.size());
      const double input = layer == 0 && k == 0 ? 2 * h : h;
      const double key_value_rows = k == 0 ? keys : rows;
      total += 2 * input * (q * rows + 2 * kv * key_value_rows);
      total += 2 * rows * (q * h + 3 * h * f) + 4 * q * (all_rows ? key_positions : positions);
    }
  }
  return total;
}

double NeededWork::flops(const PackedBatch& batch) {
  DraftInputs inputs;
  inputs.rows = batch.rows;
  inputs.document_ids = batch.document_ids.data();
  inputs.position_ids = batch.position_ids.data();
  inputs.loss_mask = batch.loss_mask.data();
  return flops(inputs, 1.0, 0);
}

double NeededWork::flops(const DraftInputs& inputs, double row_sampling, std::uint64_t sampling_seed) {
  plan_rows(inputs.rows, ttt_steps_, inputs.document_ids, inputs.loss_mask, {row_sampling, sampling_seed},
            &rows_);
  plan_chunk(rows_, ttt_steps_, inputs.position_ids, inputs.loss_mask, 0, rows_.keys, &plan_);
  const auto h = static_cast<double>(config_.hidden), ht = static_cast<double>(config_.target_hidden);
  const auto vd = static_cast<double>(config_.draft_vocab);
  // fc's input is data: no gradient of it is needed.
  double total = 2 * 2 * static_cast<double>(plan_.keys * config_.num_aux()) * ht * h;
  total += 3 * layer_flops(plan_);
  total += 2 * ht * vd * static_cast<double>(plan_.teachers.size());
  for (const ChunkPlan::Step& step : plan_.steps) {
    const auto counted = static_cast<double>(step.counted);
    const double metric_only = static_cast<double>(step.entry_live.size()) - counted;
    total += 2 * h * vd * (counted * (train_head_ ? 3 : 2) + metric_only);
  }
  return total;
}

double measured_peak_flops() {
  constexpr std::int64_t kSize = 1024;
  const std::vector<float> a(kSize * kSize, 0.5f), b(kSize * kSize, 0.25f);
  std::vector<float> c(kSize * kSize);
  double best = 0;
  for (int round = 0; round < 6; ++round) {  // the first one also builds the kernel
    const double begin = monotonic_seconds();
    gemm(Transpose::kNo, Transpose::kNo, kSize, kSize, kSize, 1.0f, a.data(), kSize, b.data(), kSize, 0.0f,
         c.data(), kSize);
    best = std::max(best, 2.0 * kSize * kSize * kSize / (monotonic_seconds() - begin));
  }
  return best;
}

}  // namespace eaglet
