#include "draft/memory_forecast.h"

#include <gtest/gtest.h>

#include "device/threads.h"
#include "draft/golden_file.h"

namespace eaglet {
namespace {

// One document over all rows, everything supervised, needs nearly all the memory that the model takes, for
// every variant; the batch itself needs less.
TEST(MemoryForecast, AFullBatchIsWhatTheModelTakes) {
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16}) {
    for (const std::string& path : golden::files()) {
      SCOPED_TRACE(path);
      golden::Golden g = golden::load(path);
      g.options.compute_type = type;
      const auto rows = static_cast<std::int64_t>(g.input_ids.size());
      auto model = std::move(*DraftModel::create(g.weights, g.verifier(), g.options, rows, true));
      const bool train_head = model->weights().find("lm_head.weight")->trainable;
      MemoryForecast forecast(g.weights.config, g.options, true, num_threads());
      const std::uint64_t fixed =
          sizeof(float) * (model->weights().values.size() + model->weights().embed_tokens.size() +
                           model->gradients().to_host().size()) +
          forecast.packed_bytes(train_head);
      const std::uint64_t usual = forecast.activation_bytes(g.inputs());
      std::vector<std::int32_t> one(g.input_ids.size(), 0), positions;
      const std::vector<std::uint8_t> mask(g.input_ids.size(), 1);
      for (std::int32_t p = 1; p <= rows; ++p) positions.push_back(p);
      DraftInputs full = g.inputs();
      full.document_ids = one.data();
      full.position_ids = positions.data();
      full.loss_mask = mask.data();
      const std::uint64_t most = forecast.activation_bytes(full);
      EXPECT_LE(usual, most);
      EXPECT_GT(usual, 0u);
      const auto taken = static_cast<double>(model->memory_bytes());
      EXPECT_NEAR(static_cast<double>(fixed + most), taken, 0.1 * taken);
    }
  }
}

}  // namespace
}  // namespace eaglet
