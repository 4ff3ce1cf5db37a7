#include <gtest/gtest.h>

#include <cmath>

#include "draft/golden_file.h"
#include "draft/row_plan.h"

namespace eaglet {
namespace {

struct StepResult {
  StepSums sums;
  std::vector<float> gradients;
};

StepResult step_of(const golden::Golden& g, const TttOptions& options, std::uint64_t sampling_seed = 0) {
  auto model = DraftModel::create(g.weights, g.verifier(), options,
                                  static_cast<std::int64_t>(g.input_ids.size()), true);
  EXPECT_TRUE(model.ok()) << model.status().message();
  (*model)->set_sampling_seed(sampling_seed);
  auto sums = (*model)->step(g.inputs(), true);
  EXPECT_TRUE(sums.ok()) << sums.status().message();
  return {*sums, (*model)->gradients().to_host()};
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

void expect_equal_sums(const StepSums& a, const StepSums& b) {
  for (std::size_t k = 0; k < a.depth.size(); ++k) {
    EXPECT_NEAR(a.depth[k].loss, b.depth[k].loss, 1e-5 * std::abs(b.depth[k].loss));
    EXPECT_EQ(a.depth[k].counted, b.depth[k].counted);
    EXPECT_EQ(a.depth[k].full_right, b.depth[k].full_right);
    EXPECT_EQ(a.depth[k].cond_right, b.depth[k].cond_right);
    EXPECT_EQ(a.depth[k].cond_total, b.depth[k].cond_total);
    EXPECT_EQ(a.depth[k].outside, b.depth[k].outside);
  }
}

// Every golden draft, cut into chunks of any length: the same losses, metrics and gradients.
TEST(golden, ChunksChangeNothing) {
  for (const std::string& path : golden::files()) {
    const golden::Golden g = golden::load(path);
    const StepResult whole = step_of(g, g.options);
    for (const std::int64_t rows : {1, 2, 5, 11}) {
      SCOPED_TRACE(path + " chunk of " + std::to_string(rows));
      TttOptions options = g.options;
      options.chunk_rows = rows;
      const StepResult cut = step_of(g, options);
      expect_equal_sums(cut.sums, whole.sums);
      EXPECT_LE(relative_difference(cut.gradients, whole.gradients), 1e-5);
    }
  }
}

// Chunks without gradients go one way only; predictions and sums are those of the whole.
TEST(golden, ChunksPredictTheSame) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    std::vector<Predictions> predictions(2);
    std::vector<StepSums> sums(2);
    for (std::size_t i = 0; i < 2; ++i) {
      TttOptions options = g.options;
      options.chunk_rows = i == 0 ? 0 : 3;
      auto model = DraftModel::create(g.weights, g.verifier(), options,
                                      static_cast<std::int64_t>(g.input_ids.size()), false);
      ASSERT_TRUE(model.ok());
      ASSERT_TRUE((*model)->step(g.inputs(), false, &sums[i], &predictions[i]).ok());
    }
    expect_equal_sums(sums[1], sums[0]);
    EXPECT_EQ(predictions[1].draft_best, predictions[0].draft_best);
    EXPECT_EQ(predictions[1].teacher_best, predictions[0].teacher_best);
    EXPECT_EQ(predictions[1].teacher_best_full, predictions[0].teacher_best_full);
  }
}

// States that come from a reader, run by run, in place of arrays.
class ArrayRows : public StateRows {
 public:
  ArrayRows(const DraftInputs& inputs, std::int64_t aux_width, std::int64_t width)
      : inputs_(inputs), aux_width_(aux_width), width_(width) {}
  Status read_aux(std::int64_t first, std::int64_t n, float* to) override {
    for (std::int64_t p = first; p < first + n; ++p)
      EXPECT_EQ(inputs_.document_ids[p], inputs_.document_ids[first]);
    std::copy_n(inputs_.aux_hidden_states + first * aux_width_, n * aux_width_, to);
    return fail_ ? Status(StatusCode::kDataLoss, "a state is damaged") : Status();
  }
  Status read_last(std::int64_t first, std::int64_t n, float* to) override {
    std::copy_n(inputs_.last_hidden_states + first * width_, n * width_, to);
    return {};
  }
  void fail() { fail_ = true; }

 private:
  DraftInputs inputs_;
  std::int64_t aux_width_, width_;
  bool fail_ = false;
};

TEST(golden, StatesReadByChunkAreThoseOfTheArrays) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    const DraftConfig& c = g.weights.config;
    ArrayRows rows(g.inputs(), c.num_aux() * c.target_hidden, c.target_hidden);
    TttOptions options = g.options;
    options.chunk_rows = 4;
    const StepResult want = step_of(g, options);
    auto model = DraftModel::create(g.weights, g.verifier(), options,
                                    static_cast<std::int64_t>(g.input_ids.size()), true);
    ASSERT_TRUE(model.ok());
    DraftInputs inputs = g.inputs();
    inputs.aux_hidden_states = inputs.last_hidden_states = nullptr;
    inputs.states = &rows;
    ASSERT_TRUE((*model)->step(inputs, true).ok());
    EXPECT_EQ((*model)->gradients().to_host(), want.gradients);
    rows.fail();
    EXPECT_EQ((*model)->step(inputs, true).status().code(), StatusCode::kDataLoss);
  }
}

// The mean over many draws of rows is the gradient of all rows.
TEST(golden, RowSamplingIsUnbiased) {
  const golden::Golden g = golden::load(golden::files().front());
  const StepResult all = step_of(g, g.options);
  TttOptions options = g.options;
  options.row_sampling = 0.5;
  std::vector<float> mean(all.gradients.size(), 0.0f);
  constexpr int kDraws = 400;
  double most_counted = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const StepResult some = step_of(g, options, static_cast<std::uint64_t>(draw));
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += some.gradients[i] / kDraws;
    most_counted = std::max(most_counted, some.sums.depth[0].counted);
  }
  EXPECT_LT(most_counted, all.sums.depth[0].counted);  // rows really are left out
  EXPECT_LE(relative_difference(mean, all.gradients), 0.1);
  EXPECT_EQ(step_of(g, options, 7).gradients, step_of(g, options, 7).gradients);
}

TEST(RowPlan, EveryRowIsDrawnWithTheSameChance) {
  const std::vector<std::int32_t> documents(41, 0);
  const std::vector<std::uint8_t> mask(41, 1);
  std::vector<int> drawn(41, 0);
  RowPlan plan;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    plan_rows(41, 1, documents.data(), mask.data(), {0.3, seed}, &plan);
    int kept = 0;
    for (std::size_t p = 0; p < 41; ++p) {
      drawn[p] += plan.last_step[p] >= 0 ? 1 : 0;
      kept += plan.last_step[p] >= 0 ? 1 : 0;
    }
    EXPECT_TRUE(kept == 12 || kept == 13) << kept;  // 0.3 * 41 = 12.3
    EXPECT_EQ(plan.counted[0], 41);
  }
  for (const int n : drawn) EXPECT_NEAR(n, 600, 100);
}

}  // namespace
}  // namespace eaglet
