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

// The likeliest token gets weight 1.
double TokenSampler::weigh(float* logits, std::int64_t vocab) const {
  const auto scale = static_cast<float>(1 / options_.temperature);
  return static_cast<double>(vexp_sum(logits, vocab, scale, scale * vmax(logits, vocab), logits));
}

std::int32_t TokenSampler::draw_from(const float* weights, std::int64_t vocab, double total) {
  double left = rng_.uniform() * total;
  for (std::int64_t i = 0; i < vocab; ++i) {
    left -= static_cast<double>(weights[i]);
    if (left < 0) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(vargmax(weights, vocab));  // rounding left a rest
}

std::int32_t TokenSampler::draw(float* logits, std::int64_t vocab) {
  const double total = weigh(logits, vocab);
  if (!leaves_out()) return draw_from(logits, vocab, total);
  double left = rng_.uniform() * keep_best(logits, vocab, total);
  for (const auto& [weight, token] : kept_) {
    left -= static_cast<double>(weight);
    if (left < 0) return token;
  }
  return kept_.front().second;  // rounding left a rest
}

// The weights that draw() draws by, in place of the logits; their sum.
double TokenSampler::distribution(float* logits, std::int64_t vocab) {
  const double total = weigh(logits, vocab);
  if (!leaves_out()) return total;
  const double kept = keep_best(logits, vocab, total);
  std::fill_n(logits, vocab, 0.0f);
  for (const auto& [weight, token] : kept_) logits[token] = weight;
  return kept;
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

// Fills kept_ with what min_p, top_k and top_p leave, the best first; their sum. Most of a vocabulary has
// next to nothing: only what is near the best is sorted, unless that is not enough.
double TokenSampler::keep_best(const float* weights, std::int64_t vocab, double total) {
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
  return sum_of(kept_);
}

DraftedToken TokenSampler::draft(float* logits, const DraftVocab& vocab) {
  DraftedToken drafted;
  std::int64_t id = 0;
  if (options_.temperature > 0) {
    drafted.total = distribution(logits, vocab.size());
    id = draw_from(logits, vocab.size(), drafted.total);
    drafted.weights.assign(logits, logits + vocab.size());
  } else {
    id = vargmax(logits, vocab.size());
  }
  drafted.target_id = vocab.target_ids[static_cast<std::size_t>(id)];
  return drafted;
}

namespace {

// weights -= the draft's share of `total`, where that leaves something; the sum of what is left.
double take_off(const DraftedToken& drafted, const DraftVocab& vocab, double total, float* weights,
                std::int64_t n) {
  const double scale = total / drafted.total;
  for (std::size_t i = 0; i < drafted.weights.size(); ++i) {
    float& left = weights[vocab.target_ids[i]];
    left = std::max(0.0f, left - static_cast<float>(scale * static_cast<double>(drafted.weights[i])));
  }
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(weights[i]);
  return sum;
}

double weight_of(const DraftedToken& drafted, const DraftVocab& vocab) {
  const auto at = std::lower_bound(vocab.target_ids.begin(), vocab.target_ids.end(), drafted.target_id);
  return static_cast<double>(drafted.weights[static_cast<std::size_t>(at - vocab.target_ids.begin())]);
}

}  // namespace

// Rejection sampling (Leviathan et al., 2023): accepted with probability min(1, p/q), else drawn from what p
// has above q.
std::int32_t TokenSampler::judge(float* logits, std::int64_t vocab, const DraftedToken& drafted,
                                 const DraftVocab& draft_vocab) {
  if (drafted.weights.empty()) return choose(logits, vocab);
  penalise(logits);
  const double total = distribution(logits, vocab);
  const double p = static_cast<double>(logits[drafted.target_id]) / total,
               q = weight_of(drafted, draft_vocab) / drafted.total;
  std::int32_t token = drafted.target_id;
  if (rng_.uniform() * q >= p) {
    const double left = take_off(drafted, draft_vocab, total, logits, vocab);
    if (left > 0) token = draw_from(logits, vocab, left);  // else p and q are the same but for rounding
  }
  see(token);
  return token;
}

}  // namespace eaglet
