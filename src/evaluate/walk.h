#pragma once

#include <cstdint>
#include <vector>

#include "batch/packed_batch.h"
#include "draft/draft_model.h"
#include "evaluate/evaluate.h"

namespace eaglet {

/// What a drafted token is held against.
enum class Judge {
  kTargetBest,      // the target's best over its whole vocabulary: what a greedy server accepts
  kDraftVocabBest,  // its best among the draft's own tokens: what training calls right
  kAnswer,  // the token that the answer really has there; for a greedy answer the target's best as its engine
            // computed it
};

/// Marks [K][T]: 1 where the draft's step-k token at row p passes the judge.
std::vector<std::vector<std::uint8_t>> right_marks(const PackedBatch& batch, const Predictions& predictions,
                                                   int steps, Judge judge);

/// Adds one batch's answers to `walked`, for draft length walked->draft_length. A server starts a draft only
/// where the last one ended: first at the answer's first token, then on by accepted + 1. Accepted tokens are
/// cut at the draft length and at the answer's last token (docs/math/acceptance.md). Every run of supervised
/// rows of a document is one answer.
void walk(const PackedBatch& batch, const std::vector<std::vector<std::uint8_t>>& right,
          WalkedAcceptance* walked);

/// Takes from the batch's mask what is beyond the first limits[d] tokens of document d's first answer, later
/// answers too; -1 takes nothing. The supervised rows of a document begin with its first answer.
void limit_answers(const std::vector<std::int64_t>& limits, PackedBatch* batch);

}  // namespace eaglet
