#pragma once

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "verifier/sampling.h"

namespace eaglet {

/// Chooses the tokens of one answer. What it chooses depends on logits, seed and the tokens so far, on
/// nothing else.
class TokenSampler {
 public:
  TokenSampler(const SamplingOptions& options, std::uint64_t seed, const std::vector<std::int32_t>& prompt);
  /// The next token from logits [vocab], which are changed. Of equal ones the lowest id.
  std::int32_t choose(float* logits, std::int64_t vocab);

 private:
  void see(std::int32_t token);
  void penalise(float* logits) const;
  std::int32_t draw(float* logits, std::int64_t vocab);
  std::int32_t draw_from_best(const float* weights, std::int64_t vocab, double total);

  SamplingOptions options_;
  Rng rng_;
  std::unordered_set<std::int32_t> seen_;             // when there is a penalty
  std::vector<std::pair<float, std::int32_t>> kept_;  // kept between calls for its memory
};

}  // namespace eaglet
