#include "generate/token_sampler.h"

#include <algorithm>
#include <cmath>

#include "ops/vector_math.h"

namespace eaglet {

TokenSampler::TokenSampler(const SamplingOptions& options, std::uint64_t seed,
                           const std::vector<std::int32_t>& prompt)
    : options_(options), rng_(seed) {
  for (const std::int32_t token : prompt) see(token);
}

void TokenSampler::see(std::int32_t token) {
  if (options_.repetition_penalty != 1) seen_.insert(token);
}

void TokenSampler::penalise(float* logits) const {
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const std::int32_t token : seen_)
    logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
}

std::int32_t TokenSampler::choose(float* logits, std::int64_t vocab) {
  penalise(logits);
  const std::int32_t token =
      options_.temperature > 0 ? draw(logits, vocab) : static_cast<std::int32_t>(vargmax(logits, vocab));
  see(token);
  return token;
}

std::int32_t TokenSampler::draw(float* logits, std::int64_t vocab) {
  const auto scale = static_cast<float>(1 / options_.temperature);
  const float largest = scale * vmax(logits, vocab);
  const double total = static_cast<double>(vexp_sum(logits, vocab, scale, largest, logits));
  if (options_.min_p > 0 || options_.top_k > 0 || options_.top_p < 1)
    return draw_from_best(logits, vocab, total);
  double left = rng_.uniform() * total;
  for (std::int64_t i = 0; i < vocab; ++i) {
    left -= static_cast<double>(logits[i]);
    if (left < 0) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(vargmax(logits, vocab));  // rounding left a rest
}

namespace {

using Candidate = std::pair<float, std::int32_t>;

bool better(const Candidate& a, const Candidate& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// Tokens of at least `least`, the best first; their sum.
double collect(const float* weights, std::int64_t vocab, float least, std::vector<Candidate>* kept) {
  kept->clear();
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i)
    if (weights[i] >= least) {
      kept->push_back({weights[i], static_cast<std::int32_t>(i)});
      sum += static_cast<double>(weights[i]);
    }
  std::sort(kept->begin(), kept->end(), better);
  return sum;
}

double sum_of(const std::vector<Candidate>& kept) {
  double sum = 0;
  for (const Candidate& one : kept) sum += static_cast<double>(one.first);
  return sum;
}

}  // namespace

// The best token has weight 1. Most of a vocabulary has next to nothing: only what is near the best is
// sorted, unless that is not enough.
std::int32_t TokenSampler::draw_from_best(const float* weights, std::int64_t vocab, double total) {
  constexpr float kNear = 1e-3f;
  const auto floor = static_cast<float>(options_.min_p);
  const bool top_k = options_.top_k > 0 && options_.top_k < vocab;
  double found = collect(weights, vocab, std::max(floor, kNear), &kept_);
  const bool enough = floor >= kNear ||
                      (top_k && static_cast<std::int64_t>(kept_.size()) >= options_.top_k) ||
                      (!top_k && floor == 0 && options_.top_p < 1 && found >= options_.top_p * total);
  if (!enough) found = collect(weights, vocab, floor, &kept_);
  double mass = floor > 0 ? found : total;
  if (top_k && static_cast<std::int64_t>(kept_.size()) > options_.top_k)
    kept_.resize(static_cast<std::size_t>(options_.top_k));
  if (top_k) mass = sum_of(kept_);
  if (options_.top_p < 1) {
    std::size_t count = 0;
    for (double sum = 0; count < kept_.size() && sum < options_.top_p * mass; ++count)
      sum += static_cast<double>(kept_[count].first);
    kept_.resize(std::max<std::size_t>(count, 1));
  }
  double left = rng_.uniform() * sum_of(kept_);
  for (const Candidate& one : kept_) {
    left -= static_cast<double>(one.first);
    if (left < 0) return one.second;
  }
  return kept_.front().second;  // rounding left a rest
}

}  // namespace eaglet
