#include "generate/speculation.h"

#include <algorithm>

#include "device/threads.h"

namespace eaglet {

std::size_t Speculation::row_width() const {
  return static_cast<std::size_t>(draft_->config().num_aux() * draft_->config().target_hidden);
}

Speculated Speculation::begin(std::int64_t longest) const {
  return {HeadCache(draft_->cache_shape(), longest + length_), {}, {}};
}

// Before the first draft the prompt's rows are all pending; with sampling a distribution is kept of each
// proposed token.
std::uint64_t Speculation::bytes(std::int64_t longest) const {
  return HeadCache::bytes(draft_->cache_shape(), longest + length_) +
         4 * (static_cast<std::size_t>(longest) * row_width() +
              static_cast<std::size_t>(length_ * draft_->config().draft_vocab));
}

void Speculation::expect_rows(std::int64_t rows, Speculated* sequence) const {
  sequence->pending.resize(sequence->pending.size() + static_cast<std::size_t>(rows) * row_width());
}

void Speculation::capture(std::int64_t layers, std::int64_t rows, const float* x,
                          Speculated* sequence) const {
  const std::vector<std::int32_t>& wanted = draft_->config().aux_layers;
  const std::int64_t hidden = draft_->config().target_hidden;
  const auto width = static_cast<std::int64_t>(row_width());
  for (std::size_t slot = 0; slot < wanted.size(); ++slot) {
    if (wanted[slot] != layers) continue;
    float* to = sequence->pending.data() + sequence->pending.size() - rows * width +
                static_cast<std::int64_t>(slot) * hidden;
    for (std::int64_t row = 0; row < rows; ++row) std::copy_n(x + row * hidden, hidden, to + row * width);
  }
}

void Speculation::forget_rows(std::int64_t rows, Speculated* sequence) const {
  sequence->pending.resize(sequence->pending.size() - static_cast<std::size_t>(rows) * row_width());
}

// Of the draft's logits as they stand: the i-th are of all[which[i]].
void Speculation::take_drafted(const std::vector<Asking>& all, const std::vector<std::int32_t>& which) {
  parallel_items(static_cast<std::int64_t>(which.size()), [&](std::int64_t i, int) {
    const Asking& one = all[static_cast<std::size_t>(which[static_cast<std::size_t>(i)])];
    one.sequence->tokens.push_back(one.sampler->draft(draft_->logits(i), vocab()));
  });
}

void Speculation::draft(const std::vector<Asking>& all) {
  if (all.empty()) return;
  std::vector<DraftRows> rows;
  std::vector<std::int32_t> which;
  for (const Asking& one : all) {
    one.sequence->tokens.clear();
    rows.push_back({&one.sequence->cache, one.following, one.sequence->pending.data()});
    which.push_back(static_cast<std::int32_t>(which.size()));
  }
  draft_->begin(rows);
  take_drafted(all, which);
  for (std::int64_t k = 1; k < length_; ++k) {
    std::erase_if(which, [&](std::int32_t i) { return all[static_cast<std::size_t>(i)].most <= k; });
    if (which.empty()) break;
    std::vector<std::int32_t> before;
    for (const std::int32_t i : which)
      before.push_back(all[static_cast<std::size_t>(i)].sequence->tokens.back().target_id);
    draft_->next(which, before);
    take_drafted(all, which);
  }
  for (const Asking& one : all) {
    HeadCache& cache = one.sequence->cache;
    const auto drafted = static_cast<std::int64_t>(one.sequence->tokens.size());
    cache.cut(cache.length() - (drafted - 1));  // rows of drafting steps; their tokens may be refused
    one.sequence->pending.clear();
  }
}

}  // namespace eaglet
