#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"

namespace eaglet {

/// Which rows of a packed batch have to be computed at which drafting step (docs/math/row_skipping.md). A
/// row's result at step k >= 1 depends on step-0 keys and on itself only, so rows that lead to no loss and no
/// metric are never touched.
///
///   key rows   rows [begin of document, needed_end), all documents one after another: they give step-0 keys
///              and values
///   start rows rows with an entry at some step: the ones that are unrolled
constexpr int kMaxTttSteps = 64;

struct RowPlan {
  struct Document {
    std::int32_t begin = 0, end = 0;  // batch rows
    std::int32_t needed_end = 0;      // one past the last row that is a key, an embedding or a teacher
    std::int64_t first_key = 0;       // number of its first key row among all key rows
  };
  std::vector<Document> documents;  // those with something to compute
  std::int64_t keys = 0;            // all key rows
  /// [rows] last step at which the row has an entry, -1 when none (or when row sampling left it out).
  std::vector<std::int16_t> last_step;
  std::vector<std::int64_t> counted;  // [K] rows that count, before any sampling
};

/// A share of the start rows, drawn by document, for cheaper steps (docs/math/row_sampling.md).
struct RowSampling {
  double share = 1;  // of each document's start rows, (0, 1]
  std::uint64_t seed = 0;
};

/// Row p counts at step k when loss_mask[p+k] is 1 and rows p and p+k belong to one document. document_ids:
/// equal neighbours are one document, -1 is padding. All arrays [rows].
void plan_rows(std::int64_t rows, int ttt_steps, const std::int32_t* document_ids,
               const std::uint8_t* loss_mask, const RowSampling& sampling, RowPlan* plan);

/// Rows that count at each step, added to `counted` [steps]: what plan_rows() puts into RowPlan::counted.
void count_rows(std::int64_t rows, int steps, const std::int32_t* document_ids, const std::uint8_t* loss_mask,
                std::vector<double>* counted);

/// The work of a run of consecutive key rows [first_key, first_key + keys) of a batch. A batch that fits is
/// one chunk; a longer one is cut, so that activations exist for one chunk only (docs/math/chunks.md).
/// "Key numbers" below count from first_key; spans reach back to earlier chunks with negative numbers.
struct ChunkPlan {
  /// Rows keep their memory between batches.
  struct Step {
    std::vector<std::int32_t> live;           // batch rows computed at this step (q, o, MLP), ascending
    std::vector<std::int32_t> key_of_live;    // their key numbers
    std::vector<std::int32_t> source_key;     // number of row p+k among `rows` (the embedding of step k)
    std::vector<std::int32_t> positions;      // rotary position of the row at this step
    std::vector<std::int32_t> parent;         // index in live[k-1] (step 0: key number)
    std::vector<AttentionSpan> spans;         // per document
    std::vector<std::int32_t> entry_live;     // index in live[k] of each row whose logits are needed
    std::vector<std::int32_t> entry_teacher;  // index in `teachers` of row p+k
    std::vector<std::uint8_t> entry_counted;  // 1 = counts for the loss; 0 = metric only
    std::int64_t counted = 0;
  };
  std::int64_t first_key = 0, keys = 0;
  /// Batch rows: the key rows, then up to K-1 rows of the document that the chunk's end cuts, whose
  /// embeddings the last key rows need at later steps.
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> key_positions;
  std::vector<AttentionSpan> key_spans;  // queries = all key rows (lower layers of deep drafts at step 0)
  std::vector<std::int32_t> teachers;    // batch rows whose teacher distribution is needed, ascending
  std::vector<Step> steps;               // [K]
  /// own_index[k][j][i], 1 <= j <= k: index in live[j] of live[k][i].
  std::vector<std::vector<std::vector<std::int32_t>>> own_index;
  /// Row-steps computed, for the log: sum over k of |live[k]|.
  std::int64_t live_row_steps() const;
};

/// The batch rows of key rows [first_key, first_key + keys): what ChunkPlan::rows begins with.
void key_rows(const RowPlan& plan, std::int64_t first_key, std::int64_t keys,
              std::vector<std::int32_t>* rows);

void plan_chunk(const RowPlan& plan, int ttt_steps, const std::int32_t* position_ids,
                const std::uint8_t* loss_mask, std::int64_t first_key, std::int64_t keys, ChunkPlan* chunk);

}  // namespace eaglet
