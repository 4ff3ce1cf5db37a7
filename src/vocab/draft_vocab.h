#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// The draft vocabulary: target ids in ascending order; row i of the draft's lm_head speaks for target_ids[i].
/// On disk d2t is an offset (target = draft + d2t[draft]) except in GGUF, where it is absolute.
struct DraftVocab {
  std::int64_t target_vocab = 0;
  std::vector<std::int32_t> target_ids;          // [draft_vocab], ascending, distinct
  std::int64_t size() const { return static_cast<std::int64_t>(target_ids.size()); }
  bool is_full() const { return size() == target_vocab; }
  /// [target_vocab]: draft id of a target id, -1 when it is not in the draft vocabulary.
  std::vector<std::int32_t> target_to_draft() const;
  std::vector<std::int64_t> d2t_offsets() const;  // [draft_vocab]
  std::vector<std::uint8_t> t2d_flags() const;    // [target_vocab]
};

/// Rule (case 07): special and end-of-turn ids first, then by count down and id up over supervised training tokens,
/// filled with the smallest unused ids, stored ascending. counts [target_vocab]. kInvalidArgument when
/// draft_vocab_size is not in 1..target_vocab.
Result<DraftVocab> choose_draft_vocab(const std::vector<std::int64_t>& counts, const std::vector<std::int32_t>& special_ids,
                                      const std::vector<std::int32_t>& end_ids, std::int64_t draft_vocab_size);
/// Share of the counted tokens that the vocabulary covers, 0..1 (1 when nothing was counted).
double covered_share(const DraftVocab& vocab, const std::vector<std::int64_t>& counts);
/// From stored offsets (all HF-side tools). kDataLoss when not distinct or out of range. Order is kept as stored:
/// `ascending` tells whether it was sorted (Model-Optimizer and NeMo do not sort).
Result<DraftVocab> vocab_from_offsets(const std::vector<std::int64_t>& d2t, std::int64_t target_vocab, bool* ascending);

}  // namespace eaglet
