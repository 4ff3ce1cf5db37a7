#include "generate/token_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace eaglet {
namespace {

constexpr std::int64_t kVocab = 300;

// A few likely tokens among many unlikely ones, in no order.
std::vector<float> logits() {
  std::vector<float> all(static_cast<std::size_t>(kVocab));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = -6.0f + 0.01f * static_cast<float>(i * 37 % 100);
  all[7] = 1.0f, all[3] = 2.0f, all[200] = 2.0f, all[150] = 0.0f, all[299] = -1.0f, all[0] = -2.0f;
  return all;
}

// The distribution by the definitions, in plain steps.
std::vector<double> wanted(const SamplingOptions& options) {
  const std::vector<float> z = logits();
  std::vector<double> p(z.size());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::exp(static_cast<double>(z[i]) / options.temperature);
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  const double best = p[order[0]];
  for (double& v : p)
    if (v < options.min_p * best) v = 0;
  for (std::size_t i = 0; i < order.size(); ++i)
    if (options.top_k > 0 && static_cast<std::int64_t>(i) >= options.top_k) p[order[i]] = 0;
  const double mass = std::accumulate(p.begin(), p.end(), 0.0);
  double before = 0;
  for (const std::size_t i : order) {
    if (options.top_p < 1 && before >= options.top_p * mass) p[i] = 0;
    before += p[i];
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
  return p;
}

using Draw = std::function<std::int32_t(TokenSampler&)>;

std::int32_t draw_plainly(TokenSampler& sampler) {
  std::vector<float> z = logits();
  return sampler.choose(z.data(), kVocab);
}

// Pearson's statistic of 40,000 draws, tokens of few expected draws together; what lies outside must not
// come.
void expect_distribution(const SamplingOptions& options, const Draw& draw = draw_plainly) {
  SCOPED_TRACE(testing::Message() << "temperature " << options.temperature << " top_p " << options.top_p
                                  << " top_k " << options.top_k << " min_p " << options.min_p);
  constexpr int kDraws = 40000;
  const std::vector<double> p = wanted(options);
  std::vector<int> count(p.size());
  TokenSampler sampler(options, 5, {});
  for (int i = 0; i < kDraws; ++i) ++count[static_cast<std::size_t>(draw(sampler))];
  double statistic = 0, rest_p = 0, rest_count = 0;
  int cells = 0;
  const auto cell = [&](double expected, double found) {
    statistic += (found - expected) * (found - expected) / expected, ++cells;
  };
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(count[i], 0) << "token " << i;
    } else if (p[i] * kDraws < 20) {
      rest_p += p[i], rest_count += count[i];
    } else {
      cell(p[i] * kDraws, count[i]);
    }
  }
  if (rest_p > 0) cell(rest_p * kDraws, rest_count);
  const double freedom = cells - 1;
  EXPECT_LT(statistic, freedom + 4.5 * std::sqrt(2 * freedom) + 4) << cells << " cells";
}

TEST(TokenSampler, DrawsAsTheDefinitionsSay) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    expect_distribution({.temperature = temperature});
    expect_distribution({.temperature = temperature, .top_p = 0.6});
    expect_distribution({.temperature = temperature, .top_p = 0.99});
    expect_distribution({.temperature = temperature, .top_k = 1});
    expect_distribution({.temperature = temperature, .top_k = 4});
    expect_distribution({.temperature = temperature, .top_k = 250});
    expect_distribution({.temperature = temperature, .min_p = 0.3});
    expect_distribution({.temperature = temperature, .min_p = 0.0001});
    expect_distribution({.temperature = temperature, .top_p = 0.8, .top_k = 3});
    expect_distribution({.temperature = temperature, .top_p = 0.9, .top_k = 200, .min_p = 0.0005});
  }
}

// A draft that knows every fifth token, likely ones among them, and is wrong about all of them.
DraftVocab draft_vocab() {
  DraftVocab vocab;
  vocab.target_vocab = kVocab;
  for (std::int32_t id = 0; id < kVocab; id += 5) vocab.target_ids.push_back(id);
  vocab.target_ids.insert(vocab.target_ids.begin() + 1, 3);
  return vocab;
}
std::vector<float> draft_logits() {
  std::vector<float> all(static_cast<std::size_t>(draft_vocab().size()), -5.0f);
  all[1] = 0.5f, all[41] = 2.5f, all[31] = 1.0f, all[10] = 1.5f;  // 3, 200, 150, 45
  return all;
}

// Some tokens are the draft's, some drawn anew: together they are as if there were no draft.
TEST(TokenSampler, ADraftChangesNoDistribution) {
  const DraftVocab vocab = draft_vocab();
  const std::vector<SamplingOptions> all = {{.temperature = 1},
                                            {.temperature = 0.5, .top_p = 0.9},
                                            {.temperature = 2, .top_k = 4},
                                            {.temperature = 1, .top_p = 0.9, .top_k = 200, .min_p = 0.0005}};
  for (const SamplingOptions& options : all) {
    int accepted = 0, judged = 0;
    expect_distribution(options, [&](TokenSampler& sampler) {
      std::vector<float> q = draft_logits(), z = logits();
      const DraftedToken drafted = sampler.draft(q.data(), vocab);
      const std::int32_t token = sampler.judge(z.data(), kVocab, drafted, vocab);
      accepted += token == drafted.target_id, ++judged;
      return token;
    });
    EXPECT_GT(accepted, judged / 4);
    EXPECT_LT(accepted, judged * 9 / 10);
  }
}

TEST(TokenSampler, GreedyADraftChangesNothing) {
  const DraftVocab vocab = draft_vocab();
  TokenSampler sampler({}, 1, {});
  std::vector<float> q = draft_logits(), z = logits();
  const DraftedToken drafted = sampler.draft(q.data(), vocab);
  EXPECT_EQ(drafted.target_id, 200);
  EXPECT_EQ(sampler.judge(z.data(), kVocab, drafted, vocab), 3);
}

TEST(TokenSampler, GreedyTakesTheFirstOfEquals) {
  std::vector<float> z = logits();
  EXPECT_EQ(TokenSampler({}, 1, {}).choose(z.data(), kVocab), 3);
}

TEST(TokenSampler, PenaltyActsOnPromptAndAnswer) {
  SamplingOptions options;
  options.repetition_penalty = 1.5;
  TokenSampler sampler(options, 1, {3, 150});
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 3; ++i) {
    std::vector<float> z = logits();
    z[299] = 1.2f;
    tokens.push_back(sampler.choose(z.data(), kVocab));
  }
  // 200 has 2.0, then 1.33 as 3 has; 3 is the lower id.
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{200, 3, 3}));
  options.repetition_penalty = 4;
  std::vector<float> z(static_cast<std::size_t>(kVocab), -1.0f);
  z[3] = -0.5f;
  EXPECT_EQ(TokenSampler(options, 1, {3}).choose(z.data(), kVocab), 0);  // -0.5 becomes -2
}

TEST(TokenSampler, TheSeedDecides) {
  const auto draws = [](std::uint64_t seed) {
    TokenSampler sampler({.temperature = 1}, seed, {});
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> z = logits();
      tokens.push_back(sampler.choose(z.data(), kVocab));
    }
    return tokens;
  };
  EXPECT_EQ(draws(3), draws(3));
  EXPECT_NE(draws(3), draws(4));
}

}  // namespace
}  // namespace eaglet
