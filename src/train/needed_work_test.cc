#include "train/needed_work.h"

#include <gtest/gtest.h>

namespace eaglet {
namespace {

PackedBatch batch_of(int documents, int rows_each, double unsupervised_share) {
  PackedBatch batch;
  for (int d = 0; d < documents; ++d) {
    for (int p = 0; p < rows_each; ++p) {
      batch.document_ids.push_back(d);
      batch.position_ids.push_back(p + 1);
      batch.loss_mask.push_back(p >= unsupervised_share * rows_each ? 1 : 0);
    }
  }
  batch.rows = batch.real_tokens = documents * rows_each;
  return batch;
}

DraftConfig sample_shape() {
  DraftConfig c;
  c.hidden = c.target_hidden = 576;
  c.num_heads = 9;
  c.num_kv_heads = 3;
  c.head_dim = 64;
  c.intermediate = 1536;
  c.vocab = 49152;
  c.draft_vocab = 16384;
  c.aux_layers = {2, 15, 27};
  return c;
}

// One step, one document, everything supervised: the plain count per token with a trained head,
// 2 * fc + 3 * (layer + attention) + 3 * head + teacher.
TEST(NeededWork, OneStepEqualsThePlainCount) {
  const DraftConfig c = sample_shape();
  const double t = 64, h = 576, q = 576, kv = 192, f = 1536, vd = 16384;
  const double layer = 2 * (2 * h * q + 2 * 2 * h * kv + q * h + 3 * h * f);
  const double attention = 4 * q * (t + 1) / 2;
  const double per_token = 2 * (2 * 3 * h * h) + 3 * (layer + attention) + 3 * (2 * h * vd) + 2 * h * vd;
  EXPECT_NEAR(NeededWork(c, 1, true).flops(batch_of(1, 64, 0)), t * per_token, 1e-9 * t * per_token);
}

// The design's measuring shape: 2048 rows, 4 documents, first 40 % unsupervised, 3 steps, head frozen: about
// 0.128 GFLOP a token with skipped rows, less what the shared embedding half saves.
TEST(NeededWork, SampleShapeIsWhatTheDesignSays) {
  const double gflop = NeededWork(sample_shape(), 3, false).flops(batch_of(4, 512, 0.4)) / 2048 / 1e9;
  EXPECT_NEAR(gflop, 0.129, 0.002);
}

TEST(NeededWork, UnsupervisedDocumentsAndPaddingCostNothing) {
  PackedBatch batch = batch_of(2, 100, 0.4);
  NeededWork work(sample_shape(), 3, true);
  const double before = work.flops(batch);
  for (int p = 0; p < 50; ++p) {
    batch.document_ids.push_back(-1);
    batch.position_ids.push_back(0);
    batch.loss_mask.push_back(0);
  }
  batch.rows += 50;
  EXPECT_EQ(work.flops(batch), before);
}

TEST(NeededWork, PeakIsMeasured) {
  EXPECT_GT(measured_peak_flops(), 1e8);
}

}  // namespace
}  // namespace eaglet
