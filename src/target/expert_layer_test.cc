#include "target/expert_layer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "target/target_forward.h"

namespace eaglet {
namespace {

/// A disk that takes its time for the experts.
class SlowExperts : public WeightSource {
 public:
  SlowExperts(std::unique_ptr<WeightSource> from, int milliseconds)
      : from_(std::move(from)), milliseconds_(milliseconds) {}
  Result<std::vector<float>> read(const std::string& name, const std::vector<std::int64_t>& shape) override {
    if (name.find(".experts.") != name.npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds_));
    return from_->read(name, shape);
  }

 private:
  std::unique_ptr<WeightSource> from_;
  int milliseconds_;
};

double waited_with(int milliseconds) {
  const std::string folder = std::string(EAGLET_TESTDATA) + "/golden_targets/qwen3_moe";
  auto files = open_target_files(folder);
  EXPECT_TRUE(files.ok()) << files.status().what();
  const TargetConfig& c = files->config;
  TargetTensors tensors(
      std::make_unique<SlowExperts>(std::move(*open_folder_weights(folder, c.quantisation)), milliseconds),
      folder);
  auto layer = read_layer(c, 1, tensors);
  EXPECT_TRUE(layer.ok());
  LayerProducts products(c, ForwardOptions{});
  products.load(&*layer);
  constexpr std::int64_t kRows = 20;
  std::vector<float> x(static_cast<std::size_t>(kRows * c.hidden)), normed(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i % 17) - 0.8f;
  std::vector<LayerScratch> scratch(static_cast<std::size_t>(num_threads()));
  EXPECT_TRUE(expert_layer(c, 1, *layer, kRows, tensors, products, x.data(), normed.data(), &scratch).ok());
  return tensors.waited_seconds();
}

// Three matrices an expert, some of them read at once; what is left of the sleep is waited for.
TEST(ExpertLayer, WaitingForWeightsIsCounted) {
  EXPECT_GT(waited_with(20), 0.06);
}

}  // namespace
}  // namespace eaglet
