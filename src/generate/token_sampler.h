#pragma once

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "verifier/sampling.h"
#include "vocab/draft_vocab.h"

namespace eaglet {

/// A token that a draft proposes.
struct DraftedToken {
  std::int32_t target_id = 0;
  /// What it was drawn from [Vd], by draft id, adding up to `total`; empty: it is the draft's best.
  std::vector<float> weights = {};
  double total = 0;
};

/// Chooses the tokens of one answer. What it chooses depends on logits, seed and the tokens so far, on
/// nothing else.
class TokenSampler {
 public:
  TokenSampler(const SamplingOptions& options, std::uint64_t seed, const std::vector<std::int32_t>& prompt);
  /// The next token from logits [vocab], which are changed. Of equal ones the lowest id.
  std::int32_t choose(float* logits, std::int64_t vocab);

  // With a draft (docs/math/drafting.md): what comes out is distributed as what choose() gives; greedy, it is
  // the same.
  /// A draft's next token from its logits [Vd], which are changed.
  DraftedToken draft(float* logits, const DraftVocab& vocab);
  /// The answer's next token where `drafted` was proposed; accepted when it is drafted.target_id.
  std::int32_t judge(float* logits, std::int64_t vocab, const DraftedToken& drafted,
                     const DraftVocab& draft_vocab);

 private:
  void see(std::int32_t token);
  void penalise(float* logits) const;
  double weigh(float* logits, std::int64_t vocab) const;
  bool leaves_out() const { return options_.min_p > 0 || options_.top_k > 0 || options_.top_p < 1; }
  double keep_best(const float* weights, std::int64_t vocab, double total);
  double distribution(float* logits, std::int64_t vocab);
  std::int32_t draw(float* logits, std::int64_t vocab);
  std::int32_t draw_from(const float* weights, std::int64_t vocab, double total);

  SamplingOptions options_;
  Rng rng_;
  std::unordered_set<std::int32_t> seen_;             // when there is a penalty
  std::vector<std::pair<float, std::int32_t>> kept_;  // kept between calls for its memory
};

}  // namespace eaglet
