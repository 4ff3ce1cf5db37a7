#include "generate/shared_beginning.h"

#include <algorithm>

namespace eaglet {
namespace {

std::int64_t common_tokens(const NativeSequence& s, std::int64_t most,
                           const std::vector<std::int32_t>& prompt) {
  most = std::min(most, static_cast<std::int64_t>(prompt.size()));
  std::int64_t n = 0;
  while (n < most && s.token(n) == prompt[static_cast<std::size_t>(n)]) ++n;
  return n;
}

std::int64_t rows_to_take(const NativeSequence& s, const std::vector<std::int32_t>& prompt) {
  const std::int64_t common = common_tokens(s, s.cache.length(), prompt);
  std::int64_t rows = std::min(common, static_cast<std::int64_t>(prompt.size()) - 1);
  if (s.speculated) rows = std::min({rows, common - 1, s.speculated->cache.length()});
  return rows >= kLeastSharedRows ? rows : 0;
}

}  // namespace

SharedBeginning shared_beginning(const std::vector<NativeSequencePointer>& sequences,
                                 const std::vector<std::int32_t>& prompt) {
  SharedBeginning best;
  for (const NativeSequencePointer& s : sequences) {
    const std::int64_t rows = rows_to_take(*s, prompt);
    if (rows > best.rows) best = {s.get(), rows};
  }
  return best;
}

bool worth_waiting(const std::vector<NativeSequencePointer>& sequences,
                   const std::vector<std::int32_t>& prompt, std::int64_t rows_now) {
  const std::int64_t left = static_cast<std::int64_t>(prompt.size()) - rows_now;
  const std::int64_t enough = rows_now + std::max(kLeastSharedRows, left / 4);
  return std::any_of(sequences.begin(), sequences.end(), [&](const NativeSequencePointer& s) {
    return s->answer.tokens.empty() && common_tokens(*s, s->prompt_tokens(), prompt) >= enough;
  });
}

void take_over(const SharedBeginning& shared, std::size_t row_elements, NativeSequence* to) {
  if (shared.rows == 0) return;
  to->cache.copy_rows(shared.from->cache, shared.rows);
  const std::vector<std::uint16_t>& states = shared.from->answer.states;
  to->answer.states.assign(
      states.begin(),
      states.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(shared.rows) * row_elements));
  if (to->speculated) to->speculated->cache.copy_rows(shared.from->speculated->cache, shared.rows);
  to->answer.reused_tokens = shared.rows;
}

}  // namespace eaglet
