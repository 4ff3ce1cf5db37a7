#include "evaluate/draft_length.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "evaluate/overlap.h"

namespace eaglet {
namespace {

WalkedAcceptance walked(std::int64_t length, double per_pass) {
  WalkedAcceptance w;
  w.draft_length = length;
  w.tokens = 1000;
  w.accepted = 1000 - 1000 / per_pass;
  return w;
}

TEST(DraftLength, TheBestLengthFollowsTheCosts) {
  const std::vector<WalkedAcceptance> lengths = {walked(1, 1.6), walked(2, 1.9), walked(3, 2.0),
                                                 walked(4, 2.05)};
  const auto cheap = length_gains(lengths, {.draft_step = 0.01, .verify_token = 0.0});
  EXPECT_EQ(best_gain(cheap)->draft_length, 4);
  EXPECT_NEAR(best_gain(cheap)->speedup(), 2.05 / 1.04, 1e-9);
  const auto dear = length_gains(lengths, {.draft_step = 0.2, .verify_token = 0.1});
  EXPECT_EQ(best_gain(dear)->draft_length, 1);
  EXPECT_NEAR(best_gain(dear)->speedup(), 1.6 / 1.3, 1e-9);
  EXPECT_EQ(best_gain({}), nullptr);
}

TEST(DraftLength, CostsOfAServedMeasurement) {
  ServeReport report;
  EXPECT_FALSE(measured_costs(report).has_value());
  report.plain_tokens = 100;
  report.plain_seconds = 10;  // 0.1 s a pass
  for (const std::int64_t length : {1, 2, 3}) {
    ServedLength served;
    served.draft_length = length;
    served.passes = 50;
    served.seconds = 50 * 0.1 * (1 + 0.25 * static_cast<double>(length));
    report.lengths.push_back(served);
  }
  EXPECT_NEAR(measured_costs(report)->draft_step, 0.25, 1e-9);
}

// Three rows of one document, two target tokens outside the draft's three, by hand.
TEST(Overlap, SumOfMinByHand) {
  PackedBatch batch;
  batch.rows = 3;
  batch.input_ids = {0, 0, 0};
  batch.document_ids = {0, 0, 0};
  batch.position_ids = {1, 2, 3};
  batch.loss_mask = {0, 1, 1};
  batch.last_hidden_states = {1, 1, 1, -1, -1, 1};                                  // [3, 2]
  const std::vector<float> norm = {1, 1}, head = {1, 0, 0, 1, 1, 1, -1, 0, 0, -1};  // [5, 2]
  const std::vector<std::int32_t> ids = {0, 1, 3};
  Predictions predictions;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  predictions.logits = {nan, nan, nan, 0.5f, 0.2f, -1, 0,   0,   0,     // step 0, rows 0..2
                        nan, nan, nan, 1,    2,    3,  nan, nan, nan};  // step 1
  EvaluateReport report;
  report.depth.resize(2);
  add_overlap(batch, predictions,
              {.temperature = 0.5,
               .target_hidden = 2,
               .vocab = 5,
               .final_norm = norm.data(),
               .lm_head = head.data(),
               .rms_norm_eps = 0,
               .draft_ids = &ids},
              &report);
  const auto by_hand = [&](const std::vector<double>& state, const std::vector<double>& draft) {
    std::vector<double> p(5), q(3);
    double sum_p = 0, sum_q = 0, overlap = 0;
    for (int v = 0; v < 5; ++v)
      sum_p += p[v] = std::exp((head[2 * v] * state[0] + head[2 * v + 1] * state[1]) / 0.5);
    for (int d = 0; d < 3; ++d) sum_q += q[d] = std::exp(draft[d] / 0.5);
    for (int d = 0; d < 3; ++d) overlap += std::min(p[ids[d]] / sum_p, q[d] / sum_q);
    return overlap;
  };
  EXPECT_EQ(report.depth[0].overlap_rows, 2);
  EXPECT_NEAR(report.depth[0].overlap, by_hand({1, -1}, {0.5, 0.2, -1}) + by_hand({-1, 1}, {0, 0, 0}), 1e-5);
  EXPECT_EQ(report.depth[1].overlap_rows, 1) << "row 1, whose token two on is row 2";
  EXPECT_NEAR(report.depth[1].overlap, by_hand({-1, 1}, {1, 2, 3}), 1e-5);
}

}  // namespace
}  // namespace eaglet
