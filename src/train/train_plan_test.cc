#include "train/train_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/row_plan.h"
#include "train/counted_rows.h"
#include "train/state_noise.h"
#include "train/token_rows.h"
#include "train/toy_fixture_test.h"
#include "train/train_settings.h"

namespace eaglet {
namespace {

using toy::TrainRun;
class TrainPlanTest : public TrainRun {};

TEST_F(TrainPlanTest, TokenRowsAreThoseOfTheBatch) {
  for (const std::int64_t max_rows : {16, 32}) {
    TrainOptions options = this->options("run");
    options.max_seq_len = max_rows;
    const auto data = open_train_data(options, toy::target());
    ASSERT_TRUE(data.ok()) << data.status().message();
    PackedBatch batch;
    TokenRows rows;
    const auto counted = CountedRows::make(*data->store, data->training, options.max_seq_len,
                                           static_cast<int>(options.ttt_steps));
    for (const auto& documents : data->training_plan.epoch(3)) {
      ASSERT_TRUE(fill_batch(*data->store, documents, max_rows, &batch).ok());
      ASSERT_TRUE(fill_token_rows(*data->store, documents, max_rows, &rows).ok());
      EXPECT_EQ(rows.input_ids, batch.input_ids);
      EXPECT_EQ(rows.document_ids, batch.document_ids);
      EXPECT_EQ(rows.position_ids, batch.position_ids);
      EXPECT_EQ(rows.loss_mask, batch.loss_mask);
      EXPECT_EQ(rows.real_tokens, batch.real_tokens);
      std::vector<double> sum(3, 0.0), want(3, 0.0);
      counted->add(documents, &sum);
      count_rows(batch.rows, 3, batch.document_ids.data(), batch.loss_mask.data(), &want);
      EXPECT_EQ(sum, want);
    }
  }
}

TEST_F(TrainPlanTest, PlanIsWhatTheRunDoes) {
  for (const auto& [name, change] : std::vector<std::pair<std::string, std::function<void(TrainOptions&)>>>{
           {"plain", [](TrainOptions&) {}},
           {"partial", [](TrainOptions& o) { o.max_steps = 17; }},
           {"accumulated", [](TrainOptions& o) { o.accumulation_steps = 4; }},
           {"frozen", [](TrainOptions& o) { o.train_head = false; }},
           {"sampled", [](TrainOptions& o) { o.row_sampling = 0.5; }},
           {"embeddings", [](TrainOptions& o) { o.train_embeddings = true; }},
           {"muon", [](TrainOptions& o) { o.optimizer = "muon"; }}}) {
    SCOPED_TRACE(name);
    TrainOptions options = this->options(name);
    change(options);
    const auto data = open_train_data(options, toy::target());
    const auto config = planned_config(options, toy::target(), data->store->header());
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto plan = make_train_plan(options, *data, toy::target(), *config,
                                      ttt_options(options, ComputeType::kF32), 1, 1000);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto report = run(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(plan->total_steps, report->total_steps);
    EXPECT_EQ(plan->trainable_params, report->trainable_params);
    EXPECT_EQ(plan->total_params, report->total_params);
    EXPECT_NEAR(plan->needed_flops_run, report->needed_flops, 1e-12 * report->needed_flops);
    double tokens = 0, told = 0;
    for (const LogRecord& record : records_of(name))
      if (record.event == "step") {
        tokens += record.tokens_per_second * record.step_seconds;
        told = record.tokens_total;
        EXPECT_NEAR(told, tokens, 1e-6 * tokens);
      }
    EXPECT_NEAR(plan->run_tokens, told, 1e-6 * told);
    for (const std::string& line :
         plan_lines(*plan, options, count_steps(options, plan->packing.batches)->schedule, 1, 1))
      if (!line.starts_with("memory")) {
        EXPECT_THAT(watcher_.notes, testing::HasSubstr(line));
      }
    EXPECT_GT(plan->memory.total(), 1000u);
  }
}

TEST_F(TrainPlanTest, LongestThatFitsUsesTheBytesThereAre) {
  TrainOptions options = this->options("run");
  const auto data = open_train_data(options, toy::target());
  const auto config = planned_config(options, toy::target(), data->store->header());
  const auto plan =
      make_train_plan(options, *data, toy::target(), *config, ttt_options(options, ComputeType::kF32), 1, 0);
  std::int64_t before = 0;
  for (const std::uint64_t megabytes : {32, 64, 128}) {
    const std::int64_t rows = longest_that_fits(options, *config, ttt_options(options, ComputeType::kF32),
                                                plan->memory, 1, megabytes << 20, 1 << 20);
    EXPECT_GT(rows, before);
    EXPECT_EQ(rows % 64, 0);
    before = rows;
  }
  EXPECT_EQ(longest_that_fits(options, *config, ttt_options(options, ComputeType::kF32), plan->memory, 1,
                              1 << 10, 1 << 20),
            0);
  EXPECT_EQ(longest_that_fits(options, *config, ttt_options(options, ComputeType::kF32), plan->memory, 1,
                              1ull << 50, 4096),
            4096);
}

TEST(StateNoise, IsBoundedSeededAndLeavesPaddingAlone) {
  PackedBatch batch;
  batch.rows = 5;
  batch.document_ids = {0, 0, 1, 1, -1};
  batch.aux_hidden_states.assign(5 * 8, 1.0f);
  batch.last_hidden_states.assign(5 * 4, 1.0f);
  PackedBatch same = batch, other = batch;
  add_state_noise(0.25, seed_of_batch(1, 2, 3), &batch);
  add_state_noise(0.25, seed_of_batch(1, 2, 3), &same);
  add_state_noise(0.25, seed_of_batch(1, 2, 4), &other);
  EXPECT_EQ(batch.aux_hidden_states, same.aux_hidden_states);
  EXPECT_NE(batch.aux_hidden_states, other.aux_hidden_states);
  EXPECT_EQ(batch.last_hidden_states, std::vector<float>(20, 1.0f));
  double sum = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_NEAR(batch.aux_hidden_states[i], 1.0f, 0.25f);
    EXPECT_NE(batch.aux_hidden_states[i], 1.0f);
    sum += batch.aux_hidden_states[i] - 1.0f;
  }
  EXPECT_NEAR(sum / 32, 0, 0.1);
  for (std::size_t i = 32; i < 40; ++i) EXPECT_EQ(batch.aux_hidden_states[i], 1.0f);
}

}  // namespace
}  // namespace eaglet
