#include "evaluate/walk.h"

#include <algorithm>

namespace eaglet {

namespace {

// What the target (or the answer) has after row t, -1 where nothing is known.
std::int32_t wanted(const PackedBatch& batch, const Predictions& predictions, Judge judge, std::size_t t) {
  if (judge == Judge::kTargetBest) return predictions.teacher_best_full[t];
  if (judge == Judge::kDraftVocabBest) return predictions.teacher_best[t];
  const bool more =
      t + 1 < static_cast<std::size_t>(batch.rows) && batch.document_ids[t + 1] == batch.document_ids[t];
  return more ? batch.input_ids[t + 1] : -1;
}

}  // namespace

std::vector<std::vector<std::uint8_t>> right_marks(const PackedBatch& batch, const Predictions& predictions,
                                                   int steps, Judge judge) {
  const auto rows = static_cast<std::size_t>(batch.rows);
  std::vector<std::vector<std::uint8_t>> right(static_cast<std::size_t>(steps),
                                               std::vector<std::uint8_t>(rows, 0));
  for (std::size_t k = 0; k < right.size(); ++k)
    for (std::size_t p = 0; p + k < rows; ++p) {
      if (batch.document_ids[p] < 0 || batch.document_ids[p] != batch.document_ids[p + k]) continue;
      const std::int32_t drafted = predictions.draft_best[k * rows + p];
      right[k][p] = drafted >= 0 && drafted == wanted(batch, predictions, judge, p + k) ? 1 : 0;
    }
  return right;
}

namespace {

// Rows [first, end) are one answer: row p holds its token, and its draft speaks about the tokens of rows p+1,
// p+2, ...
void walk_answer(std::int64_t first, std::int64_t end, const std::vector<std::vector<std::uint8_t>>& right,
                 WalkedAcceptance* walked) {
  walked->tokens += static_cast<double>(end - first);
  for (std::int64_t p = first; p + 1 < end;) {
    const std::int64_t longest =
        std::min({walked->draft_length, static_cast<std::int64_t>(right.size()), end - 1 - p});
    std::int64_t accepted = 0;
    while (accepted < longest &&
           right[static_cast<std::size_t>(accepted)][static_cast<std::size_t>(p)] != 0) {
      walked->accepted_at[static_cast<std::size_t>(accepted)] += 1;
      ++accepted;
    }
    walked->accepted += static_cast<double>(accepted);
    walked->drafts += 1;
    p += accepted + 1;
  }
}

}  // namespace

void walk(const PackedBatch& batch, const std::vector<std::vector<std::uint8_t>>& right,
          WalkedAcceptance* walked) {
  walked->accepted_at.resize(static_cast<std::size_t>(walked->draft_length), 0.0);
  const auto same_answer = [&](std::size_t a, std::size_t b) {
    return batch.loss_mask[b] != 0 && batch.document_ids[a] == batch.document_ids[b];
  };
  for (std::size_t p = 0; p < static_cast<std::size_t>(batch.rows);) {
    if (batch.document_ids[p] < 0 || batch.loss_mask[p] == 0) {
      ++p;
      continue;
    }
    std::size_t end = p + 1;
    while (end < static_cast<std::size_t>(batch.rows) && same_answer(p, end)) ++end;
    walk_answer(static_cast<std::int64_t>(p), static_cast<std::int64_t>(end), right, walked);
    p = end;
  }
}

void limit_answers(const std::vector<std::int64_t>& limits, PackedBatch* batch) {
  std::int32_t document = -1;
  std::int64_t left = 0;  // of the document's first answer
  bool before_answer = true;
  for (std::size_t p = 0; p < static_cast<std::size_t>(batch->rows); ++p) {
    if (batch->document_ids[p] < 0) continue;
    if (batch->document_ids[p] != document) {
      document = batch->document_ids[p];
      left = limits[static_cast<std::size_t>(document)];
      before_answer = true;
    }
    if (left < 0) continue;
    if (batch->loss_mask[p] != 0) {
      before_answer = false;
      if (left == 0)
        batch->loss_mask[p] = 0;
      else
        --left;
    } else if (!before_answer) {
      left = 0;  // the first answer has ended
    }
  }
}

}  // namespace eaglet
