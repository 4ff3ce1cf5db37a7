// The times of a whole step's ops add up to what the emulated device was busy: none is left out.

#include <gtest/gtest.h>

#include "draft/golden_checks_test.h"
#include "emulation.h"
#include "ops/adamw.h"
#include "ops/device_test.h"

namespace eaglet {
namespace {

using test::accelerator;

class StepTimes : public test::OnDevice {};

TEST_F(StepTimes, AddUpToTheWholeStep) {
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBf16}) {
    const golden::Golden g = golden::load(EAGLET_TESTDATA "/golden/eagle3_head_trained.safetensors");
    TttOptions options = g.options;
    options.compute_type = type;
    options.chunk_rows = g.inputs().rows / 2 + 1;  // two chunks
    auto model = DraftModel::create(g.weights, g.verifier(), options, g.inputs().rows, true, accelerator());
    ASSERT_TRUE(model.ok()) << model.status().message();
    ASSERT_TRUE(accelerator()->wait().ok());
    accelerator()->take_op_times();
    const double before = emulation::busy_seconds();
    accelerator()->time_ops(true);
    ASSERT_TRUE((*model)->step(g.inputs(), true).ok());
    EXPECT_TRUE(std::isfinite(l2_norm((*model)->trainable_elements(), (*model)->gradients().data())));
    accelerator()->time_ops(false);
    const OpTimes times = accelerator()->take_op_times();
    const double busy = emulation::busy_seconds() - before;
    EXPECT_NEAR(times.in_line() + times.of(OpGroup::kStates), busy, 1e-4 * busy);
    for (const OpGroup group :
         {OpGroup::kProducts, OpGroup::kAttention, OpGroup::kHeadLoss, OpGroup::kNorms, OpGroup::kElementwise,
          OpGroup::kOptimizer, OpGroup::kCopies, OpGroup::kStates})
      EXPECT_GT(times.of(group), 0) << op_group_name(group);
    EXPECT_EQ(times.of(OpGroup::kReduction), 0);
  }
}

// What was sent ahead after a step, the next one does not send. (A copy is known to be done once ops used
// it.)
TEST_F(StepTimes, WhatWasSentAheadIsNotSentAgain) {
  const golden::Golden g = golden::load(EAGLET_TESTDATA "/golden/eagle3_base.safetensors");
  const auto model = golden::model_of(g, accelerator());
  ASSERT_TRUE(model->step(g.inputs(), true).ok());
  const auto sent_by = [&](const auto& body) {
    EXPECT_TRUE(accelerator()->wait().ok());
    accelerator()->take_op_times();
    accelerator()->time_ops(true);
    body();
    (void)l2_norm(model->trainable_elements(), model->gradients().data());
    EXPECT_TRUE(accelerator()->wait().ok());
    accelerator()->time_ops(false);
    return accelerator()->take_op_times().of(OpGroup::kStates);
  };
  const double plain = sent_by([&] { ASSERT_TRUE(model->step(g.inputs(), true).ok()); });
  EXPECT_GT(plain, 0);
  const double ahead = sent_by([&] {
    model->look_ahead(g.inputs(), 0);
    ASSERT_TRUE(model->step(g.inputs(), true).ok());
  });
  EXPECT_NEAR(ahead, plain, 1e-3 * plain);
}

}  // namespace
}  // namespace eaglet
