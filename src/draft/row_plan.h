#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"

namespace eaglet {

/// Which rows of a packed batch have to be computed at which drafting step (docs/math/row_skipping.md). A
/// row's result at step k >= 1 depends on step-0 keys and on itself only, so rows that lead to no loss and no
/// metric are never touched.
///
///   key rows      rows [begin of document, last needed row], all documents one after another: they give
///   step-0 keys and values live[k]       rows computed at step k (q, o, MLP): those with an entry at a step
///   >= k; live[k+1] is a subset of live[k] entries[k]    rows whose logits are needed at step k: counted
///   rows, and metric-only rows (right-so-far is asked of them)
struct RowPlan {
  /// Rows keep their memory between batches.
  struct Step {
    std::vector<std::int32_t> live;           // batch rows, ascending
    std::vector<std::int32_t> key_of_live;    // index of the row in the key rows
    std::vector<std::int32_t> source_key;     // index in the key rows of row p+k (the embedding of step k)
    std::vector<std::int32_t> positions;      // rotary position of the row at this step
    std::vector<std::int32_t> parent;         // index in live[k-1] (step 0: index in the key rows)
    std::vector<AttentionSpan> spans;         // per document
    std::vector<std::int32_t> entry_live;     // index in live[k] of each entry
    std::vector<std::int32_t> entry_teacher;  // index in `teachers` of row p+k
    std::vector<std::uint8_t> entry_counted;  // 1 = counts for the loss; 0 = metric only
    std::int64_t counted = 0;
  };
  std::vector<std::int32_t> key_rows;  // batch rows
  std::vector<std::int32_t> key_positions;
  std::vector<AttentionSpan> key_spans;  // queries = all key rows (lower layers of deep drafts at step 0)
  std::vector<std::int32_t> teachers;    // batch rows whose teacher distribution is needed, ascending
  std::vector<Step> steps;               // [K]
  /// own_index[k][j][i], 1 <= j <= k: index in live[j] of live[k][i].
  std::vector<std::vector<std::vector<std::int32_t>>> own_index;
  /// Row-steps computed, for the log: sum over k of |live[k]|.
  std::int64_t live_row_steps() const;
};

/// Row p counts at step k when loss_mask[p+k] is 1 and rows p and p+k belong to one document. document_ids:
/// equal neighbours are one document, -1 is padding. All arrays [rows].
void plan_rows(std::int64_t rows, int ttt_steps, const std::int32_t* document_ids,
               const std::int32_t* position_ids, const std::uint8_t* loss_mask, RowPlan* plan);

/// Rows that count at each step, added to `counted` [steps]: what plan_rows() puts into Step::counted.
void count_rows(std::int64_t rows, int steps, const std::int32_t* document_ids, const std::uint8_t* loss_mask,
                std::vector<double>* counted);

}  // namespace eaglet
