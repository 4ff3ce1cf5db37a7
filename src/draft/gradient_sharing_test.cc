#include <gtest/gtest.h>

#include "draft/golden_file.h"
#include "draft/row_plan.h"

namespace eaglet {
namespace {

double norm_of(const std::vector<float>& a, const std::vector<float>* minus = nullptr) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - (minus != nullptr ? double{(*minus)[i]} : 0.0);
    sum += d * d;
  }
  return std::sqrt(sum);
}

std::unique_ptr<DraftModel> model_of(const golden::Golden& g) {
  return std::move(*DraftModel::create(g.weights, g.verifier(), g.options,
                                       static_cast<std::int64_t>(g.input_ids.size()), true));
}

// One document of the batch in its place, the other rows turned into padding.
struct OneDocument {
  std::vector<std::int32_t> document_ids;
  std::vector<std::uint8_t> loss_mask;
};
OneDocument only(const golden::Golden& g, std::int32_t document) {
  OneDocument one{g.document_ids, g.loss_mask};
  for (std::size_t p = 0; p < one.document_ids.size(); ++p) {
    if (one.document_ids[p] == document) continue;
    one.document_ids[p] = -1;
    one.loss_mask[p] = 0;
  }
  return one;
}

TEST(GradientSharing, DocumentsOneByOneAddUpToTheBatch) {
  int with_several = 0;
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    const std::int32_t documents = 1 + *std::max_element(g.document_ids.begin(), g.document_ids.end());
    if (documents < 2) continue;
    ++with_several;
    auto model = model_of(g);
    const auto whole = model->step(g.inputs(), true);
    ASSERT_TRUE(whole.ok());
    const std::vector<float> want = model->gradients().to_host();

    GradientSharing& sharing = model->sharing();
    sharing.counted.assign(static_cast<std::size_t>(g.options.ttt_steps), 0.0);
    count_rows(g.inputs().rows, g.options.ttt_steps, g.document_ids.data(), g.loss_mask.data(),
               &sharing.counted);
    for (std::size_t k = 0; k < sharing.counted.size(); ++k)
      EXPECT_EQ(sharing.counted[k], whole->depth[k].counted);
    for (std::int32_t d = 0; d < documents; ++d) {
      const OneDocument one = only(g, d);
      DraftInputs inputs = g.inputs();
      inputs.document_ids = one.document_ids.data();
      inputs.loss_mask = one.loss_mask.data();
      ASSERT_TRUE(model->step(inputs, true).ok());
      sharing.accumulate = true;
    }
    EXPECT_LE(norm_of(model->gradients().to_host(), &want), 1e-5 * norm_of(want) + 1e-12);
  }
  EXPECT_GT(with_several, 3);
}

// A document without a supervised token teaches nothing: its states and ids change no bit of loss and
// gradients, and a batch of nothing else has a loss and gradients of exactly zero.
TEST(GradientSharing, UnsupervisedDocumentsHaveNoLossAndNoGradient) {
  int with_several = 0;
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    golden::Golden g = golden::load(path);
    const std::int32_t documents = 1 + *std::max_element(g.document_ids.begin(), g.document_ids.end());
    auto model = model_of(g);
    std::vector<std::uint8_t> mask = g.loss_mask;
    for (std::size_t p = 0; p < mask.size(); ++p)
      if (g.document_ids[p] == documents - 1) mask[p] = 0;
    DraftInputs inputs = g.inputs();
    inputs.loss_mask = mask.data();
    if (documents > 1) {
      ++with_several;
      const auto first = model->step(inputs, true);
      ASSERT_TRUE(first.ok());
      const std::vector<float> gradients = model->gradients().to_host();
      EXPECT_GT(norm_of(gradients), 0);
      std::vector<std::int32_t> ids = g.input_ids;
      for (std::size_t p = 0; p < ids.size(); ++p)
        if (g.document_ids[p] == documents - 1) ids[p] = (ids[p] + 1) % 2;
      inputs.input_ids = ids.data();
      const auto second = model->step(inputs, true);
      ASSERT_TRUE(second.ok());
      EXPECT_EQ(first->loss(g.options), second->loss(g.options));
      EXPECT_EQ(gradients, model->gradients().to_host());
      inputs.input_ids = g.input_ids.data();
    }
    std::fill(mask.begin(), mask.end(), 0);
    const auto nothing = model->step(inputs, true);
    ASSERT_TRUE(nothing.ok()) << nothing.status().message();
    EXPECT_EQ(nothing->loss(g.options), 0);
    EXPECT_EQ(nothing->depth[0].counted, 0);
    for (const float value : model->gradients().to_host()) ASSERT_EQ(value, 0.0f);
  }
  EXPECT_GT(with_several, 3);
}

TEST(GradientSharing, WhatIsSaidToBeFinalIsFinal) {
  for (const std::string& path : golden::files()) {
    SCOPED_TRACE(path);
    const golden::Golden g = golden::load(path);
    auto model = model_of(g);
    std::vector<float> seen(model->gradients().to_host().size(), NAN);
    std::int64_t before = model->trainable_elements(), calls = 0;
    model->sharing().on_final = [&](std::int64_t first) {
      ASSERT_LE(first, before);
      std::copy(model->gradients().data() + first, model->gradients().data() + before, seen.begin() + first);
      before = first;
      ++calls;
    };
    ASSERT_TRUE(model->step(g.inputs(), true).ok());
    EXPECT_EQ(before, 0);
    EXPECT_GE(calls, 3);
    EXPECT_EQ(seen, model->gradients().to_host());
  }
}

}  // namespace
}  // namespace eaglet
