#pragma once

#include <cstdint>
#include <vector>

#include "generate/native_sequence.h"

namespace eaglet {

/// Prompts begin alike: with a system prompt, with tools, with the turns before. What an earlier sequence
/// kept of such a beginning is copied instead of computed again.
///
/// Fewer rows are not worth a copy.
constexpr std::int64_t kLeastSharedRows = 16;

struct SharedBeginning {
  const NativeSequence* from = nullptr;
  std::int64_t rows = 0;  // 0: nothing to take over
};

/// The longest beginning of `prompt` whose rows one of `sequences` keeps. At least the prompt's last token is
/// left to the target, which must give logits after it. With a draft the last shared row too: the draft reads
/// its states, which are not kept, together with the token after it.
SharedBeginning shared_beginning(const std::vector<NativeSequencePointer>& sequences,
                                 const std::vector<std::int32_t>& prompt);

/// Would `prompt` find much more to take over once the sequences that begin in this step have gone through
/// the target? More: at least kLeastSharedRows and a quarter of what it would compute now.
bool worth_waiting(const std::vector<NativeSequencePointer>& sequences,
                   const std::vector<std::int32_t>& prompt, std::int64_t rows_now);

/// `to` has its request and empty caches; takes over the rows, their states of `row_elements` numbers each,
/// and the draft's rows.
void take_over(const SharedBeginning& shared, std::size_t row_elements, NativeSequence* to);

}  // namespace eaglet
