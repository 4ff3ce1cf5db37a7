#include <gtest/gtest.h>

#include "device/threads.h"
#include "draft/golden_file.h"
#include "ops/adamw.h"

namespace eaglet {
namespace {

double norm_of_difference(const float* a, const float* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}
double norm(const float* a, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += double{a[i]} * a[i];
  return std::sqrt(sum);
}

std::unique_ptr<DraftModel> model_of(const golden::Golden& g) {
  auto model = DraftModel::create(g.weights, g.verifier(), g.options,
                                  static_cast<std::int64_t>(g.input_ids.size()), true);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(*model);
}

TEST(golden, FolderIsThere) {
  EXPECT_GE(golden::files().size(), std::getenv("EAGLET_GOLDEN_DIR") == nullptr ? 29u : 1u);
}

TEST(golden, LossesAndMetrics) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    auto sums = model_of(g)->step(g.inputs(), true);
    ASSERT_TRUE(sums.ok()) << sums.status().message();
    const double loss = g.scalar("out.loss");
    EXPECT_NEAR(sums->loss(g.options.step_decay), loss, 2e-5 * std::abs(loss));
    for (int k = 0; k < g.options.ttt_steps; ++k) {
      SCOPED_TRACE(k);
      const std::string depth = "_" + std::to_string(k) + "_";
      const DepthSums& d = sums->depth[static_cast<std::size_t>(k)];
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
}

TEST(golden, EveryGradient) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    auto model = model_of(g);
    ASSERT_TRUE(model->step(g.inputs(), true).ok());
    int compared = 0;
    for (const ParameterInfo& info : model->weights().table) {
      if (!info.trainable) continue;
      SCOPED_TRACE(info.name);
      const std::vector<float> want = g.f32("grad." + info.name);
      ASSERT_EQ(static_cast<std::int64_t>(want.size()), info.elements);
      const float* got = model->gradients().data() + info.offset;
      EXPECT_LE(norm_of_difference(got, want.data(), want.size()),
                1e-4 * norm(want.data(), want.size()) + 1e-12);
      ++compared;
    }
    int stored = 0;
    for (const SafetensorsEntry& entry : g.file->entries()) stored += entry.name.starts_with("grad.") ? 1 : 0;
    EXPECT_EQ(compared, stored);  // no gradient of the file went unchecked
    const double gradient_norm = g.scalar("out.grad_norm");
    EXPECT_NEAR(l2_norm(model->trainable_elements(), model->gradients().data()), gradient_norm,
                1e-4 * gradient_norm);
  }
}

TEST(golden, PredictionsOfComputedRows) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    Predictions predictions;
    ASSERT_TRUE(model_of(g)->step(g.inputs(), false, &predictions).ok());
    int seen = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(g.options.ttt_steps); ++k) {
      const auto want = golden::whole_numbers<std::int32_t>(*g.file, "out.draft_argmax_" + std::to_string(k));
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
}

TEST(golden, AdamwSteps) {
  int files_with_steps = 0;
  for (const std::string& path : golden::files()) {
    const golden::Golden g = golden::load(path);
    if (!g.config["optimizer"].is_object()) continue;
    SCOPED_TRACE(path);
    ++files_with_steps;
    const Json& o = g.config["optimizer"];
    auto model = model_of(g);
    const std::int64_t n = model->trainable_elements();
    std::vector<float> first(static_cast<std::size_t>(n)), second(static_cast<std::size_t>(n));
    const auto* lr = g.file->find("out.step_lr");
    ASSERT_NE(lr, nullptr);
    const auto* rates = reinterpret_cast<const double*>(g.file->data(*lr));
    const std::vector<float> losses = g.f32("out.step_loss"), norms = g.f32("out.step_grad_norm");
    for (int s = 0; s < g.config["steps"].get<int>(); ++s) {
      auto sums = model->step(g.inputs(), true);
      ASSERT_TRUE(sums.ok());
      const auto i = static_cast<std::size_t>(s);
      EXPECT_NEAR(sums->loss(g.options.step_decay), losses[i], 1e-4 * losses[i]) << "step " << s;
      const double gradient_norm = l2_norm(n, model->gradients().data());
      EXPECT_NEAR(gradient_norm, norms[i], 1e-3 * norms[i]) << "step " << s;
      const double scale = std::min(1.0, o["clip"].get<double>() / (gradient_norm + 1e-6));
      adamw(n, model->weights().values.data(), model->gradients().data(), first.data(), second.data(), scale,
            rates[i], s + 1, {o["betas"][0], o["betas"][1], o["eps"], o["weight_decay"]});
    }
    for (const ParameterInfo& info : model->weights().table) {
      if (!info.trainable) continue;
      const std::vector<float> want = g.f32("w1." + info.name);
      const float* got = model->weights().values.data() + info.offset;
      EXPECT_LE(norm_of_difference(got, want.data(), want.size()), 1e-4 * norm(want.data(), want.size()))
          << info.name;
    }
  }
  if (std::getenv("EAGLET_GOLDEN_DIR") == nullptr) {
    EXPECT_EQ(files_with_steps, 2);
  }
}

TEST(golden, TwoRunsAreBitEqualAndThreadsAgree) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    const auto gradients = [&](int threads) {
      set_num_threads(threads);
      auto model = model_of(g);
      EXPECT_TRUE(model->step(g.inputs(), true).ok());
      EXPECT_TRUE(model->step(g.inputs(), true).ok());  // what the first step left behind must not matter
      return model->gradients();
    };
    const std::vector<float> once = gradients(2), again = gradients(2), alone = gradients(1);
    set_num_threads(0);
    EXPECT_EQ(once, again);
    EXPECT_LE(norm_of_difference(once.data(), alone.data(), once.size()),
              1e-6 * norm(alone.data(), alone.size()));
  }
}

}  // namespace
}  // namespace eaglet
