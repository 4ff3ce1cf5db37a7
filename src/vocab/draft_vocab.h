#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// The draft vocabulary: target ids in ascending order; row i of the draft's lm_head speaks for
/// target_ids[i]. On disk d2t is an offset (target = draft + d2t[draft]) except in GGUF, where it is
/// absolute.
struct DraftVocab {
  std::int64_t target_vocab = 0;
  std::vector<std::int32_t> target_ids;  // [draft_vocab], ascending, distinct
  std::int64_t size() const { return static_cast<std::int64_t>(target_ids.size()); }
  bool is_full() const { return size() == target_vocab; }
  /// [target_vocab]: draft id of a target id, -1 when it is not in the draft vocabulary.
  std::vector<std::int32_t> target_to_draft() const;
  std::vector<std::int64_t> d2t_offsets() const;  // [draft_vocab]
  std::vector<std::uint8_t> t2d_flags() const;    // [target_vocab]
};

/// Rule: end-of-turn ids first, then the other special ids, then all others; within each of the three by
/// count down and id up (so ids that were never seen fill the rest from the smallest on); cut to
/// draft_vocab_size and stored ascending. Special ids are in it even with count 0, unless they alone are more
/// than draft_vocab_size. counts [target_vocab], over supervised training tokens. kInvalidArgument when
/// draft_vocab_size is not in 1..target_vocab, or an id or a count is out of range.
Result<DraftVocab> choose_draft_vocab(const std::vector<std::int64_t>& counts,
                                      const std::vector<std::int32_t>& special_ids,
                                      const std::vector<std::int32_t>& end_ids,
                                      std::int64_t draft_vocab_size);
/// Share of the counted tokens that the vocabulary covers, 0..1 (1 when nothing was counted).
double covered_share(const DraftVocab& vocab, const std::vector<std::int64_t>& counts);
/// From stored offsets (all HF-side tools). kDataLoss when not distinct or out of range. Order is kept as
/// stored: `ascending` tells whether it was sorted (Model-Optimizer and NeMo do not sort).
Result<DraftVocab> vocab_from_offsets(const std::vector<std::int64_t>& d2t, std::int64_t target_vocab,
                                      bool* ascending);
/// kDataLoss unless `t2d` [target_vocab] flags exactly the target ids of `vocab`. Only this comparison shows
/// absolute ids stored as offsets whose sums happen to stay in range, or a map of zeros: call it whenever a
/// file has a t2d.
Status check_t2d(const DraftVocab& vocab, const std::vector<std::int64_t>& t2d);

}  // namespace eaglet
