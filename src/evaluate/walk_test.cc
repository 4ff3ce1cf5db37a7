#include "evaluate/walk.h"

#include <gtest/gtest.h>

namespace eaglet {
namespace {

PackedBatch rows_of(const std::vector<std::int32_t>& documents, const std::vector<std::uint8_t>& mask) {
  PackedBatch batch;
  batch.rows = static_cast<std::int64_t>(documents.size());
  batch.document_ids = documents;
  batch.loss_mask = mask;
  return batch;
}

WalkedAcceptance walk_with(std::int64_t length, const PackedBatch& batch,
                           const std::vector<std::vector<std::uint8_t>>& right) {
  WalkedAcceptance walked;
  walked.draft_length = length;
  walk(batch, right, &walked);
  return walked;
}

TEST(Walk, StartsAtTheAnswerAndGoesOnByAcceptedPlusOne) {
  // Prompt row, then an answer of 6 rows: drafts can be made for the 5 tokens after the first.
  const PackedBatch batch = rows_of({0, 0, 0, 0, 0, 0, 0}, {0, 1, 1, 1, 1, 1, 1});
  // Row 1: one right -> row 3: none right -> row 4: two right, which ends the answer.
  const std::vector<std::vector<std::uint8_t>> right = {{1, 1, 1, 0, 1, 1, 1}, {1, 0, 1, 1, 1, 1, 1}};
  const WalkedAcceptance walked = walk_with(2, batch, right);
  EXPECT_EQ(walked.tokens, 6);
  EXPECT_EQ(walked.accepted, 3);
  EXPECT_EQ(walked.drafts, 3);  // the last one ends the answer, without a bonus token
  EXPECT_EQ(walked.accepted_at, (std::vector<double>{2, 1}));
  EXPECT_DOUBLE_EQ(walked.acceptance_length(),
                   2.0);  // 6 tokens in 3 passes (the prompt's pass gives the first)
}

TEST(Walk, IsCutAtTheAnswersEndAndAtTheDraftLength) {
  const PackedBatch batch = rows_of({0, 0, 0}, {1, 1, 1});
  const std::vector<std::vector<std::uint8_t>> all(4, std::vector<std::uint8_t>(3, 1));
  EXPECT_EQ(walk_with(4, batch, all).accepted, 2);  // two tokens follow the first one
  EXPECT_EQ(walk_with(1, batch, all).drafts, 1);
  EXPECT_EQ(walk_with(1, batch, all).accepted, 1);  // one accepted and the bonus token: nothing is left
}

TEST(Walk, DocumentsAndPaddingDoNotRunTogether) {
  const PackedBatch batch = rows_of({0, 0, 1, 1, -1, -1}, {1, 1, 1, 1, 0, 0});
  const std::vector<std::vector<std::uint8_t>> all(3, std::vector<std::uint8_t>(6, 1));
  const WalkedAcceptance walked = walk_with(3, batch, all);
  EXPECT_EQ(walked.tokens, 4);
  EXPECT_EQ(walked.accepted, 2);
}

TEST(LimitAnswers, KeepsTheBeginningOfTheFirstAnswer) {
  //                          prompt  answer   asked  answer  whole row      padding
  PackedBatch batch = rows_of({0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, -1}, {0, 1, 1, 1, 1, 0, 1, 1,  //
                                                                               0, 1, 0, 1, 0, 1, 0});
  limit_answers({2, -1, 9}, &batch);
  EXPECT_EQ(batch.loss_mask, (std::vector<std::uint8_t>{0, 1, 1, 0, 0, 0, 0, 0,  //
                                                        0, 1, 0, 1, 0, 1, 0}));
  limit_answers({9, 9, 0}, &batch);  // a later answer goes though the first is shorter than the limit
  EXPECT_EQ(batch.loss_mask, (std::vector<std::uint8_t>{0, 1, 1, 0, 0, 0, 0, 0,  //
                                                        0, 1, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace eaglet
