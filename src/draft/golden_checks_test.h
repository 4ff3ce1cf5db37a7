#pragma once

// What every golden file demands of a step in fp32, on the host and on a device alike: one set of tolerances
// (testdata/golden/README.md).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "draft/golden_file.h"
#include "ops/adamw.h"
#include "ops/rows.h"

namespace eaglet::golden {

inline double norm_of_difference(const float* a, const float* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}
inline double norm(const float* a, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += double{a[i]} * a[i];
  return std::sqrt(sum);
}

/// A model on `device`, or on the host without one.
inline std::unique_ptr<DraftModel> model_of(const Golden& g, Accelerator* device = nullptr,
                                            ComputeType type = ComputeType::kF32) {
  TttOptions options = g.options;
  options.compute_type = type;
  auto model = DraftModel::create(g.weights, g.verifier(), options,
                                  static_cast<std::int64_t>(g.input_ids.size()), true, device);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(*model) : nullptr;
}

inline void check_losses(const Golden& g, const StepSums& sums) {
  const double loss = g.scalar("out.loss");
  EXPECT_NEAR(sums.loss(g.options.step_decay), loss, 2e-5 * std::abs(loss));
  for (int k = 0; k < g.options.ttt_steps; ++k) {
    SCOPED_TRACE(k);
    const std::string depth = "_" + std::to_string(k) + "_";
    const DepthSums& d = sums.depth[static_cast<std::size_t>(k)];
    // out.metric.loss_k is the step's decayed mean with total 1.
    const double mean = std::pow(g.options.step_decay, k) * d.loss / (d.counted + 1e-5);
    const double want =
        g.scalar("out.metric.loss" + depth + "sum") / g.scalar("out.metric.loss" + depth + "total");
    EXPECT_NEAR(mean, want, 2e-5 * std::max(1.0, std::abs(want)));
    EXPECT_EQ(d.full_right, g.scalar("out.metric.full_acc" + depth + "sum"));
    EXPECT_NEAR(d.counted, g.scalar("out.metric.full_acc" + depth + "total"), 1e-3);
    EXPECT_EQ(d.cond_right, g.scalar("out.metric.cond_acc" + depth + "sum"));
    EXPECT_NEAR(d.cond_total, g.scalar("out.metric.cond_acc" + depth + "total"), 1e-3);
  }
}

/// After a step with gradients. Returns the worst distance of a tensor's gradient, in its own norm.
inline double check_gradients(const Golden& g, DraftModel& model) {
  const std::vector<float> gradients = model.gradients().to_host();
  int compared = 0;
  double worst = 0;
  for (const ParameterInfo& info : model.weights().table) {
    if (!info.trainable) continue;
    SCOPED_TRACE(info.name);
    const std::vector<float> want = g.f32("grad." + info.name);
    EXPECT_EQ(static_cast<std::int64_t>(want.size()), info.elements);
    const double size = norm(want.data(), want.size());
    const double distance = norm_of_difference(gradients.data() + info.offset, want.data(), want.size());
    EXPECT_LE(distance, 1e-4 * size + 1e-12);
    if (size > 0) worst = std::max(worst, distance / size);
    ++compared;
  }
  int stored = 0;
  for (const SafetensorsEntry& entry : g.file->entries()) stored += entry.name.starts_with("grad.") ? 1 : 0;
  EXPECT_EQ(compared, stored);  // no gradient of the file went unchecked
  const double gradient_norm = g.scalar("out.grad_norm");
  EXPECT_NEAR(l2_norm(model.trainable_elements(), model.gradients().data()), gradient_norm,
              1e-4 * gradient_norm);
  return worst;
}

inline void check_predictions(const Golden& g, DraftModel& model) {
  Predictions predictions;
  ASSERT_TRUE(model.step(g.inputs(), false, &predictions).ok());
  int seen = 0;
  for (std::size_t k = 0; k < static_cast<std::size_t>(g.options.ttt_steps); ++k) {
    const auto want = whole_numbers<std::int32_t>(*g.file, "out.draft_argmax_" + std::to_string(k));
    for (std::size_t p = 0; p < g.input_ids.size(); ++p) {
      const std::int32_t got = predictions.draft_best[k * g.input_ids.size() + p];
      if (got < 0) continue;
      EXPECT_EQ(got, g.weights.vocab.target_ids[static_cast<std::size_t>(want[p])])
          << "step " << k << " row " << p;
      ++seen;
    }
  }
  EXPECT_GT(seen, 0);
}

inline bool has_adamw_steps(const Golden& g) {
  return g.config["optimizer"].is_object();
}

/// The file's updates, one after the other. Returns the worst distance of a tensor of weights.
inline double check_adamw_steps(const Golden& g, Accelerator* device) {
  const Json& o = g.config["optimizer"];
  auto model = model_of(g, device);
  const std::int64_t n = model->trainable_elements();
  PlacedArray<float> first, second;
  for (PlacedArray<float>* moments : {&first, &second}) {
    EXPECT_TRUE(moments->take(n, device).ok());
    zero_rows(n, 1, moments->data());
  }
  const auto* lr = g.file->find("out.step_lr");
  EXPECT_NE(lr, nullptr);
  const auto* rates = reinterpret_cast<const double*>(g.file->data(*lr));
  const std::vector<float> losses = g.f32("out.step_loss"), norms = g.f32("out.step_grad_norm");
  for (int s = 0; s < g.config["steps"].get<int>(); ++s) {
    auto sums = model->step(g.inputs(), true);
    EXPECT_TRUE(sums.ok());
    const auto i = static_cast<std::size_t>(s);
    EXPECT_NEAR(sums->loss(g.options.step_decay), losses[i], 1e-4 * losses[i]) << "step " << s;
    const double gradient_norm = l2_norm(n, model->gradients().data());
    EXPECT_NEAR(gradient_norm, norms[i], 1e-3 * norms[i]) << "step " << s;
    const double scale = std::min(1.0, o["clip"].get<double>() / (gradient_norm + 1e-6));
    adamw(n, model->parameters(), model->gradients().data(), first.data(), second.data(), scale, rates[i],
          s + 1, {o["betas"][0], o["betas"][1], o["eps"], o["weight_decay"]});
  }
  EXPECT_TRUE(model->fetch_weights().ok());
  double worst = 0;
  for (const ParameterInfo& info : model->weights().table) {
    if (!info.trainable) continue;
    const std::vector<float> want = g.f32("w1." + info.name);
    const double size = norm(want.data(), want.size());
    const double distance =
        norm_of_difference(model->weights().values.data() + info.offset, want.data(), want.size());
    EXPECT_LE(distance, 1e-4 * size) << info.name;
    worst = std::max(worst, distance / size);
  }
  return worst;
}

}  // namespace eaglet::golden
