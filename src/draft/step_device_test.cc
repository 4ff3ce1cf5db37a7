// What a step on a device must keep beside the golden numbers: the same bits again, chunks, states that stay
// in the store, accumulation, the teacher over the whole vocabulary.

#include "draft/golden_checks_test.h"
#include "ops/device_test.h"

namespace eaglet {
namespace {

using test::accelerator;

class StepOnDevice : public test::OnDevice {
 protected:
  static golden::Golden load(const std::string& name) {
    return golden::load(EAGLET_TESTDATA "/golden/" + name + ".safetensors");
  }
  struct Made {
    StepSums sums;
    std::vector<float> gradients;
  };
  static Made step_of(const golden::Golden& g, const TttOptions& options, const DraftInputs& inputs,
                      Accelerator* device, int times = 1) {
    auto model = DraftModel::create(g.weights, g.verifier(), options, inputs.rows, true, device);
    EXPECT_TRUE(model.ok()) << model.status().message();
    Made made;
    for (int i = 0; i < times; ++i) {
      (*model)->sharing().accumulate = i > 0;
      const Status status = (*model)->step(inputs, true, &made.sums, nullptr);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    made.gradients = (*model)->gradients().to_host();
    return made;
  }
  static void expect_near(const Made& got, const Made& want) {
    for (std::size_t k = 0; k < want.sums.depth.size(); ++k) {
      const DepthSums &a = got.sums.depth[k], &b = want.sums.depth[k];
      EXPECT_NEAR(a.loss, b.loss, 1e-4 * std::abs(b.loss) + 1e-9);
      EXPECT_EQ(a.counted, b.counted);
      EXPECT_EQ(a.full_right, b.full_right);
      EXPECT_EQ(a.outside, b.outside);
    }
    const std::size_t n = want.gradients.size();
    EXPECT_LE(golden::norm_of_difference(got.gradients.data(), want.gradients.data(), n),
              1e-4 * golden::norm(want.gradients.data(), n));
  }
};

// States that are read where they were left.
class ReadRows : public StateRows {
 public:
  explicit ReadRows(const golden::Golden& g) : g_(g) {}
  Status read_aux(std::int64_t first, std::int64_t n, float* to) override {
    return read(g_.aux, first, n, to);
  }
  Status read_last(std::int64_t first, std::int64_t n, float* to) override {
    return read(g_.last, first, n, to);
  }
  int calls = 0;

 private:
  Status read(const std::vector<float>& from, std::int64_t first, std::int64_t n, float* to) {
    const std::int64_t width = static_cast<std::int64_t>(from.size() / g_.input_ids.size());
    std::copy_n(from.begin() + first * width, n * width, to);
    ++calls;
    return {};
  }
  const golden::Golden& g_;
};

TEST_F(StepOnDevice, TwoStepsGiveTheSameBits) {
  const golden::Golden g = load("eagle3_qwen3");
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16}) {
    TttOptions options = g.options;
    options.compute_type = type;
    EXPECT_EQ(step_of(g, options, g.inputs(), accelerator()).gradients,
              step_of(g, options, g.inputs(), accelerator()).gradients);
  }
}

// Short chunks reach back to keys of earlier ones, and use the index memory again.
TEST_F(StepOnDevice, ChunksStatesInTheStoreAndTheWholeVocabularyAreTheHosts) {
  const golden::Golden g = load("eagle3_decay_ttt5");
  TttOptions options = g.options;
  options.chunk_rows = 7;
  options.teacher_vocab = TeacherVocab::kWhole;
  options.row_sampling = 0.5;
  ReadRows rows(g);
  DraftInputs inputs = g.inputs();
  inputs.states = &rows;
  const Made device = step_of(g, options, inputs, accelerator(), 2);
  EXPECT_GT(rows.calls, 0);
  expect_near(device, step_of(g, options, g.inputs(), nullptr, 2));
}

TEST_F(StepOnDevice, DeepDraftsAndTrainedEmbeddingsAreTheHosts) {
  golden::Golden g = load("eagle3_aux4_layers2");
  ASSERT_TRUE(train_embeddings(g.embed, &g.weights).ok());
  expect_near(step_of(g, g.options, g.inputs(), accelerator()), step_of(g, g.options, g.inputs(), nullptr));
}

TEST_F(StepOnDevice, WeightsComeBackAsTheyAre) {
  const golden::Golden g = load("eagle3_base");
  auto model = golden::model_of(g, accelerator());
  model->weights().values.assign(g.weights.values.size(), 0.0f);
  ASSERT_TRUE(model->fetch_weights().ok());
  EXPECT_EQ(model->weights().values, g.weights.values);
  EXPECT_GT(model->memory_bytes(), 8 * g.weights.values.size());
}

TEST_F(StepOnDevice, TooLargeABatchIsRefusedAndTheDeviceGoesOn) {
  const golden::Golden g = load("eagle3_base");
  TttOptions options = g.options;
  options.chunk_rows = std::int64_t{1} << 28;
  const auto model =
      DraftModel::create(g.weights, g.verifier(), options, std::int64_t{1} << 28, true, accelerator());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kNoSpace) << model.status().message();
  EXPECT_FALSE(step_of(g, g.options, g.inputs(), accelerator()).gradients.empty());
}

}  // namespace
}  // namespace eaglet
