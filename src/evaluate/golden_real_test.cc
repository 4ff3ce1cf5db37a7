// A real draft trained by speculators on SmolLM2-135M-Instruct, taken in and evaluated on a pack of three
// held-out documents. The folder is named by EAGLET_GOLDEN_REAL (draft/, pack.safetensors, expected.json);
// the target is the sample model.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "evaluate/acceptance.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/target_model.h"

namespace eaglet {
namespace {

constexpr int kSteps = 6;

template <class T>
std::vector<T> whole_numbers(const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::int64_t> wide = *file.read_i64(name);
  return std::vector<T>(wide.begin(), wide.end());
}

PackedBatch read_pack(const SafetensorsFile& file) {
  PackedBatch batch;
  batch.input_ids = whole_numbers<std::int32_t>(file, "in.input_ids");
  batch.document_ids = whole_numbers<std::int32_t>(file, "in.document_ids");
  batch.position_ids = whole_numbers<std::int32_t>(file, "in.position_ids");
  batch.loss_mask = whole_numbers<std::uint8_t>(file, "in.loss_mask");
  batch.aux_hidden_states = *file.read_f32("in.aux_hidden_states");
  batch.last_hidden_states = *file.read_f32("in.verifier_last_hidden_states");
  batch.rows = static_cast<std::int64_t>(batch.input_ids.size());
  return batch;
}

class GoldenReal : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("EAGLET_GOLDEN_REAL");
    if (folder == nullptr) GTEST_SKIP() << "EAGLET_GOLDEN_REAL does not name the folder with the real draft";
    const char* model = std::getenv("EAGLET_MODEL");
    const std::string path = model != nullptr ? model : EAGLET_SAMPLE_MODEL;
    auto target = read_target_facts(path);
    if (!target.ok()) GTEST_SKIP() << "the sample model is not there: " << path;
    folder_ = folder;
    target_ = *target;
    auto weights = read_target_weights(path);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    weights_ = std::move(*weights);
  }

  std::unique_ptr<DraftModel> model(std::int64_t rows) {
    auto draft = read_draft(folder_ + "/draft", false, nullptr);
    EXPECT_TRUE(draft.ok()) << draft.status().message();
    vocab_ = draft->vocab;
    TttOptions options;
    options.ttt_steps = kSteps;
    auto made = DraftModel::create(std::move(*draft),
                                   {weights_.embed_tokens.data(), weights_.final_norm.data(),
                                    weights_.head().data(), target_.rms_norm_eps},
                                   options, rows, false);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }

  std::string folder_;
  TargetFacts target_;
  TargetWeights weights_;
  DraftVocab vocab_;
};

TEST_F(GoldenReal, PackOfThreeDocuments) {
  auto file = SafetensorsFile::open(folder_ + "/pack.safetensors");
  ASSERT_TRUE(file.ok());
  const PackedBatch batch = read_pack(*file);
  const Json expected = *read_json_file(folder_ + "/expected.json");
  auto draft = model(batch.rows);
  EvaluateReport report;
  ASSERT_TRUE(add_acceptance(*draft, kSteps, batch, nullptr, &report).ok());
  finish_acceptance(&report);
  for (std::size_t k = 0; k < kSteps; ++k) {
    SCOPED_TRACE(k);
    const double loss = expected["pack_loss"][k], right = expected["pack_right"][k];
    EXPECT_NEAR(report.depth[k].loss, loss, 1e-4 * loss);
    EXPECT_LE(std::abs(report.depth[k].right_in_vocab - right), std::max(0.01 * right, 0.5));
    EXPECT_EQ(report.depth[k].total, expected["pack_total"][k].get<double>());
  }
  // The same predictions against the answers' own tokens: 243 of 768 over all rows, 175 when walked with
  // draft length 3.
  EXPECT_NEAR(report.walked[2].acceptance_length(), 1.295, 0.0006);
  EXPECT_NEAR(report.answer_is_target_best_share, 752.0 / 768.0, 0.003);
}

TEST_F(GoldenReal, PredictionsOfThePack) {
  auto file = SafetensorsFile::open(folder_ + "/pack.safetensors");
  ASSERT_TRUE(file.ok());
  const PackedBatch batch = read_pack(*file);
  auto draft = model(batch.rows);
  Predictions predictions;
  ASSERT_TRUE(
      draft
          ->step({batch.rows, batch.input_ids.data(), batch.document_ids.data(), batch.position_ids.data(),
                  batch.loss_mask.data(), batch.aux_hidden_states.data(), batch.last_hidden_states.data()},
                 false, &predictions)
          .ok());
  std::int64_t compared = 0, different = 0;
  for (std::size_t k = 0; k < kSteps; ++k) {
    const auto want = whole_numbers<std::int32_t>(*file, "out.draft_argmax_" + std::to_string(k));
    for (std::size_t p = 0; p < static_cast<std::size_t>(batch.rows); ++p) {
      const std::int32_t got = predictions.draft_best[k * static_cast<std::size_t>(batch.rows) + p];
      if (got < 0) continue;
      ++compared;
      different += got != vocab_.target_ids[static_cast<std::size_t>(want[p])] ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 4000);
  EXPECT_LE(different, compared / 1000);  // only near-ties of bf16 weights may fall the other way
}

}  // namespace
}  // namespace eaglet
