// The golden files on a device: in fp32 at the host's tolerances, with bf16 products at bf16's. With
// EAGLET_GOLDEN_TABLE set, the table of docs/gpu.md is printed.

#include <cstdio>

#include "draft/golden_checks_test.h"
#include "ops/device_test.h"

namespace eaglet {
namespace {

using test::accelerator;

class GoldenOnDevice : public test::OnDevice {};

std::string name_of(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

// How far a step is from the file: its loss, and the direction of all gradients together.
struct Distance {
  double loss = 0, gradients = 0, cosine = 1;
};

Distance distance_of(const golden::Golden& g, const StepSums& sums, DraftModel& model) {
  const std::vector<float> gradients = model.gradients().to_host();
  std::vector<float> want(gradients.size());
  for (const ParameterInfo& info : model.weights().table) {
    if (!info.trainable) continue;
    const std::vector<float> of = g.f32("grad." + info.name);
    std::copy(of.begin(), of.end(), want.begin() + info.offset);
  }
  const double size = golden::norm(want.data(), want.size()),
               ours = golden::norm(gradients.data(), gradients.size());
  double dot = 0;
  for (std::size_t i = 0; i < want.size(); ++i) dot += double{want[i]} * gradients[i];
  const double loss = g.scalar("out.loss");
  Distance d;
  if (loss != 0) d.loss = std::abs(sums.loss(g.options.step_decay) - loss) / std::abs(loss);
  if (size > 0) {
    d.gradients = golden::norm_of_difference(gradients.data(), want.data(), want.size()) / size;
    d.cosine = dot / (size * ours);
  }
  return d;
}

TEST_F(GoldenOnDevice, StepsInFp32AndWithBf16Products) {
  const bool table = std::getenv("EAGLET_GOLDEN_TABLE") != nullptr;
  if (table)
    std::puts(
        "| file | fp32: loss | worst gradient | bf16: loss | gradients | cosine "
        "|\n|---|---|---|---|---|---|");
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    auto model = golden::model_of(g, accelerator());
    ASSERT_NE(model, nullptr);
    const auto sums = model->step(g.inputs(), true);
    ASSERT_TRUE(sums.ok()) << sums.status().message();
    golden::check_losses(g, *sums);
    const double worst = golden::check_gradients(g, *model);
    auto rounded = golden::model_of(g, accelerator(), ComputeType::kBf16);
    ASSERT_NE(rounded, nullptr);
    const auto of_rounded = rounded->step(g.inputs(), true);
    ASSERT_TRUE(of_rounded.ok()) << of_rounded.status().message();
    // bf16 keeps 8 bits of a number: the loss agrees to a percent or so, the gradient points the same way.
    const Distance exact = distance_of(g, *sums, *model), d = distance_of(g, *of_rounded, *rounded);
    EXPECT_LE(d.loss, 0.02);
    EXPECT_GT(d.cosine, 0.998);
    if (table)
      std::printf("| %s | %.1e | %.1e | %.1e | %.1e | %.5f |\n", name_of(path).c_str(), exact.loss, worst,
                  d.loss, d.gradients, d.cosine);
  }
}

TEST_F(GoldenOnDevice, AdamwSteps) {
  for (const std::string& path : golden::files()) {
    const golden::Golden g = golden::load(path);
    if (!golden::has_adamw_steps(g)) continue;
    SCOPED_TRACE(path);
    const double worst = golden::check_adamw_steps(g, accelerator());
    if (std::getenv("EAGLET_GOLDEN_TABLE") != nullptr)
      std::printf("%s: weights after %d updates within %.1e of their norms\n", name_of(path).c_str(),
                  g.config["steps"].get<int>(), worst);
  }
}

TEST_F(GoldenOnDevice, PredictionsOfComputedRows) {
  for (const char* name : {"eagle3_base", "eagle3_full_vocab", "eagle3_some_correct"}) {
    SCOPED_TRACE(name);
    const golden::Golden g = golden::load(std::string(EAGLET_TESTDATA "/golden/") + name + ".safetensors");
    golden::check_predictions(g, *golden::model_of(g, accelerator()));
  }
}

// What `eaglet evaluate` looks at: best tokens over both vocabularies, and logits.
TEST_F(GoldenOnDevice, PredictionsAreTheHosts) {
  for (const char* name : {"eagle3_base", "eagle3_full_vocab"}) {
    SCOPED_TRACE(name);
    const golden::Golden g = golden::load(std::string(EAGLET_TESTDATA "/golden/") + name + ".safetensors");
    Predictions host, device;
    host.with_logits = device.with_logits = true;
    ASSERT_TRUE(golden::model_of(g)->step(g.inputs(), false, &host).ok());
    ASSERT_TRUE(golden::model_of(g, accelerator())->step(g.inputs(), false, &device).ok());
    EXPECT_EQ(device.draft_best, host.draft_best);
    EXPECT_EQ(device.teacher_best, host.teacher_best);
    EXPECT_EQ(device.teacher_best_full, host.teacher_best_full);
    ASSERT_EQ(device.logits.size(), host.logits.size());
    std::size_t compared = 0;
    for (std::size_t i = 0; i < host.logits.size(); ++i) {
      ASSERT_EQ(std::isnan(device.logits[i]), std::isnan(host.logits[i])) << i;
      if (std::isnan(host.logits[i])) continue;
      ASSERT_NEAR(device.logits[i], host.logits[i], 1e-4) << i;
      ++compared;
    }
    EXPECT_GT(compared, 0u);
  }
}

}  // namespace
}  // namespace eaglet
