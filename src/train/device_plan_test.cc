#include "train/device_plan.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/test_directory.h"
#include "train/needed_work.h"
#include "train/token_rows.h"

namespace eaglet {
namespace {

// The reference run: the draft of a 1T-parameter mixture of experts.
PlannedStep reference() {
  PlannedStep step;
  DraftConfig& c = step.config;
  c.hidden = c.target_hidden = 7168;
  c.num_heads = c.num_kv_heads = 64;
  c.head_dim = 128;
  c.intermediate = 18432;
  c.vocab = step.target_vocab = 163840;
  c.draft_vocab = 32000;
  c.aux_layers = {3, 31, 59};
  return step;
}

PlannedStep small() {
  PlannedStep step = reference();
  DraftConfig& c = step.config;
  c.hidden = c.target_hidden = 64;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 16;
  c.intermediate = 128;
  c.vocab = step.target_vocab = 512;
  c.draft_vocab = 256;
  step.max_seq_len = 640;
  step.document_tokens = 100;
  return step;
}

DevicePlan plan(const PlannedStep& step, const char* device, int ranks = 1, Link link = Link::kNvlink) {
  auto made = plan_device(step, *find_device(device), ranks, link);
  EXPECT_TRUE(made.ok()) << made.status().what();
  return *made;
}

double sum(const DevicePlan& plan, double DeviceOp::*what) {
  double all = 0;
  for (const OpTime& one : plan.ops) all += one.op.*what;
  return all;
}

TEST(DevicePlan, ReferenceHasItsParameters) {
  const ParameterCount count = count_parameters(reference());
  EXPECT_NEAR(static_cast<double>(count.trainable) / 1e9, 1.1909, 5e-5);
  EXPECT_NEAR(static_cast<double>(count.total) / 1e9, 2.5947, 5e-5);
}

// Real batches that are like the made-up ones take the same time; two of them in an update twice that, but for the
// update of the weights.
TEST(DevicePlan, RealBatchesTakeThePlaceOfMadeUpOnes) {
  PlannedStep step = small();
  TokenRows rows;
  for (std::int64_t i = 0; i < step.max_seq_len; ++i) {
    rows.input_ids.push_back(0);
    rows.document_ids.push_back(static_cast<std::int32_t>(i / step.document_tokens));
    rows.position_ids.push_back(static_cast<std::int32_t>(i % step.document_tokens + 1));
    rows.loss_mask.push_back(1);
  }
  const DevicePlan made_up = plan(step, "h100");
  step.batches = {rows.inputs(), rows.inputs()};  // looked at twice, one an update
  step.tokens_of_batch = static_cast<double>(step.max_seq_len);
  step.options.ttt_steps = step.ttt_steps;
  const DevicePlan real = plan(step, "h100");
  EXPECT_NEAR(real.step_seconds, made_up.step_seconds, 1e-9 * made_up.step_seconds);
  EXPECT_NEAR(real.tokens_per_second, made_up.tokens_per_second, 1e-9 * made_up.tokens_per_second);
  EXPECT_NEAR(real.needed_flops, made_up.needed_flops, 1e-9 * made_up.needed_flops);
  EXPECT_GT(real.memory.activations, 1.5 * made_up.memory.activations);  // fp32
  step.accumulation = 2;
  const DevicePlan twice = plan(step, "h100");
  EXPECT_NEAR(twice.needed_flops, 2 * real.needed_flops, 1e-9 * twice.needed_flops);
  double update = 0;
  for (const OpTime& op : real.ops)
    if (op.op.name == "AdamW" || op.op.name == "gradient norm") update += op.seconds;
  EXPECT_NEAR(twice.compute_seconds, 2 * real.compute_seconds - update, 1e-9 * twice.compute_seconds);
  step.options.row_sampling = 0.25;
  EXPECT_LT(plan(step, "h100").compute_seconds, twice.compute_seconds);
}

// What the ops need is what NeededWork counts, however it is shaped.
TEST(DevicePlan, OpsNeedWhatTheRowsNeed) {
  for (const int steps : {1, 3, 7})
    for (const double supervised : {1.0, 0.6, 0.03})
      for (const bool train_head : {false, true})
        for (const std::int64_t layers : {1, 2}) {
          PlannedStep step = small();
          step.ttt_steps = steps;
          step.supervised_share = supervised;
          step.train_head = train_head;
          step.config.num_layers = layers;
          const DevicePlan made = plan(step, "h100");
          EXPECT_NEAR(sum(made, &DeviceOp::needed_flops), made.needed_flops, 1e-9 * made.needed_flops);
          EXPECT_GE(sum(made, &DeviceOp::flops), made.needed_flops);
          EXPECT_LE(sum(made, &DeviceOp::flops), 14.0 / 12 * made.needed_flops);
        }
}

TEST(DevicePlan, AnOpTakesTheLongerOfItsLimits) {
  const DevicePlan made = plan(reference(), "h200");
  const DeviceFacts h200 = *find_device("h200");
  for (const OpTime& one : made.ops) {
    SCOPED_TRACE(one.op.name);
    const double launches = one.op.launches * h200.launch_seconds;
    EXPECT_GE(one.seconds * (1 + 1e-9), launches + one.op.bytes / (h200.bandwidth * h200.bandwidth_share));
    EXPECT_GE(one.seconds * (1 + 1e-9), launches + one.op.flops / h200.gemm_flops);
    EXPECT_EQ(one.bound_by_memory,
              one.op.kind == OpKind::kMemory ||
                  one.seconds - launches > one.op.flops /
                                               (one.op.kind == OpKind::kAttention
                                                    ? h200.gemm_flops * h200.attention_share
                                                    : h200.gemm_flops) *
                                               (1 + 1e-12));
  }
  EXPECT_EQ(made.binds, "arithmetic");
  EXPECT_GT(made.mfu_ratio, made.sheet_ratio);
  EXPECT_LT(made.mfu_ratio, 1);
}

TEST(DevicePlan, RanksPayForGradientsAndLinksMatter) {
  const DevicePlan one = plan(reference(), "h200", 1), eight = plan(reference(), "h200", 8),
                   pcie = plan(reference(), "h200", 8, Link::kPcie),
                   ethernet = plan(reference(), "h200", 8, Link::kEthernet),
                   nodes = plan(reference(), "h200", 64);
  EXPECT_EQ(one.reduce_seconds, 0);
  // 2.38 GB of bf16 gradients, 7/4 of them over 370 GB/s.
  EXPECT_NEAR(eight.reduce_seconds, 2 * 1.1909e9 * 7 / 4 / 370e9, 1e-5);
  EXPECT_LT(eight.reduce_seconds, pcie.reduce_seconds);
  EXPECT_LT(pcie.reduce_seconds, ethernet.reduce_seconds);
  EXPECT_GT(nodes.reduce_seconds, eight.reduce_seconds);
  EXPECT_LE(eight.tokens_per_second, 8 * one.tokens_per_second);
  EXPECT_GE(one.mfu_ratio, eight.mfu_ratio);
  PlannedStep shorter = reference();  // too little work to hide them behind
  shorter.max_seq_len = 256;
  EXPECT_EQ(plan(shorter, "h200", 64, Link::kEthernet).binds, "gradients");
}

TEST(DevicePlan, WhatFillsTheDeviceFits) {
  for (const char* device : {"h100", "4090"}) {
    SCOPED_TRACE(device);
    PlannedStep step = std::string(device) == "4090" ? small() : reference();
    const std::int64_t fitting = longest_on_device(step, *find_device(device), 1);
    ASSERT_GT(fitting, 0);
    step.max_seq_len = fitting;
    EXPECT_TRUE(plan(step, device).fits);
    step.max_seq_len += 64;
    if (step.max_seq_len > 1 << 20) continue;
    EXPECT_FALSE(plan(step, device).fits);
  }
  EXPECT_EQ(longest_on_device(reference(), *find_device("4090"), 1), 0);  // the moments alone are larger
  PlannedStep deep = reference();
  deep.ttt_steps = 16;
  deep.max_seq_len = 16384;
  EXPECT_LT(plan(deep, "h100").memory.total(), 80e9);
}

TEST(DevicePlan, WhatCannotBeIsRefused) {
  EXPECT_EQ(find_device("h300").status().code(), StatusCode::kUsage);
  EXPECT_EQ(facts_of_driver_name("NVIDIA H100 80GB HBM3")->name, "h100");
  EXPECT_EQ(facts_of_driver_name("NVIDIA A100-SXM4-80GB")->name, "a100");
  EXPECT_EQ(facts_of_driver_name("NVIDIA RTX PRO 6000 Blackwell Server Edition")->name, "rtx-pro-6000");
  EXPECT_EQ(facts_of_driver_name("NVIDIA GeForce RTX 4090")->name, "4090");
  EXPECT_EQ(facts_of_driver_name("NVIDIA RTX A1000"), nullptr);
  EXPECT_EQ(parse_link("rope").status().code(), StatusCode::kUsage);
  EXPECT_EQ(plan_device(small(), *find_device("4090"), 2, Link::kNvlink).status().code(), StatusCode::kUsage);
  EXPECT_TRUE(plan_device(small(), *find_device("4090"), 2, Link::kPcie).ok());
  for (const auto& spoil : std::vector<std::function<void(PlannedStep*)>>{
           [](PlannedStep* s) { s->max_seq_len = 1; }, [](PlannedStep* s) { s->supervised_share = 0; },
           [](PlannedStep* s) { s->ttt_steps = 65; }, [](PlannedStep* s) { s->document_tokens = 1; }}) {
    PlannedStep step = small();
    spoil(&step);
    EXPECT_EQ(plan_device(step, *find_device("h100"), 1, Link::kPcie).status().code(), StatusCode::kUsage);
  }
}

TEST(DevicePlan, MeasurementsTakeThePlaceOfAssumptions) {
  const std::string path = test_directory() + "/device.json";
  const auto with = [&](const char* text) {
    std::ofstream(path) << text;
    return calibrate(*find_device("h100"), path);
  };
  auto measured = with(R"({"device": "h100", "gemm_tflops": 700, "bandwidth_share": 0.9, "launch_us": 5})");
  ASSERT_TRUE(measured.ok()) << measured.status().what();
  EXPECT_EQ(measured->gemm_flops, 700e12);
  EXPECT_EQ(measured->bandwidth_share, 0.9);
  EXPECT_EQ(measured->attention_share, find_device("h100")->attention_share);
  EXPECT_NEAR(measured->launch_seconds, 5e-6, 1e-12);
  EXPECT_TRUE(measured->gemm_is_measured);
  EXPECT_EQ(with(R"({"device": "h200", "gemm_tflops": 700})").status().code(), StatusCode::kConfig);
  EXPECT_EQ(with(R"({"device": "h100", "gemm_tflops": 1500})").status().code(), StatusCode::kConfig);
  EXPECT_EQ(with(R"({"device": "h100", "bandwidth_share": "all"})").status().code(), StatusCode::kConfig);
  EXPECT_EQ(with("[1]").status().code(), StatusCode::kConfig);
  EXPECT_EQ(calibrate(*find_device("h100"), path + "x").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace eaglet
