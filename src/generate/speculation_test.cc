#include "generate/speculation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "generate/toy_answers_test.h"
#include "generate/toy_draft_test.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

std::vector<GenerationRequest> longer_requests() {
  std::vector<GenerationRequest> all = some_requests();
  for (GenerationRequest& request : all) request.max_tokens += 12;
  return all;
}

DraftCounts counts_of(const Answers& answers) {
  DraftCounts sum;
  for (const auto& [tag, answer] : answers) sum.add(answer.drafts);
  return sum;
}

// Whatever the draft proposes: the answers, and the states kept with them, are those of plain greedy
// decoding.
TEST(Speculation, GreedyAnswersAndTheirStatesAreThePlainOnes) {
  std::int64_t accepted = 0, refused = 0;
  for (const std::string model : kModels) {
    const auto target = load(model);
    ASSERT_NE(target, nullptr);
    const auto draft = load_draft(*target, model);
    NativeGeneratorOptions options = usual();
    options.kept_layers = {1, 0};
    const Answers plain = answers_of(target.get(), options, longer_requests());
    options.draft = draft.get();
    for (const std::int64_t length : {1, 3, 8}) {
      SCOPED_TRACE(model + ", drafts of " + std::to_string(length));
      options.draft_length = length;
      const Answers drafted = answers_of(target.get(), options, longer_requests());
      EXPECT_EQ(tokens_of(drafted), tokens_of(plain));
      const DraftCounts counts = counts_of(drafted);
      accepted += counts.accepted;
      refused += counts.drafted - counts.accepted;
      for (const auto& [tag, answer] : drafted) {
        ASSERT_EQ(answer.states.size(), plain.at(tag).states.size());
        EXPECT_EQ(static_cast<std::int64_t>(answer.tokens.size()),
                  1 + answer.drafts.passes + answer.drafts.accepted);
        for (std::size_t i = 0; i < answer.states.size(); ++i) {
          const double a = static_cast<double>(bf16_to_f32(answer.states[i])),
                       b = static_cast<double>(bf16_to_f32(plain.at(tag).states[i]));
          ASSERT_NEAR(a, b, 0.01 * std::fabs(b) + 1e-4);
        }
      }
    }
  }
  EXPECT_GT(accepted, 50);  // else nothing was tried
  EXPECT_GT(refused, 50);
}

TEST(Speculation, AnEndTokenAmongTheAcceptedEndsTheAnswer) {
  for (const std::string model : kModels) {
    SCOPED_TRACE(model);
    const auto target = load(model);
    ASSERT_NE(target, nullptr);
    const auto draft = load_draft(*target, model);
    NativeGeneratorOptions options = usual();
    const Answers plain = answers_of(target.get(), options, longer_requests());
    for (const auto& [tag, answer] : plain) {
      if (tag % 3 != 0) continue;
      const std::int32_t last = answer.tokens[answer.tokens.size() / 2];
      options.ends = [last](std::int32_t token) { return token == last; };
      options.kept_layers = {1};
      options.draft = nullptr;
      const Answers cut = answers_of(target.get(), options, longer_requests());
      options.draft = draft.get();
      const Answers drafted = answers_of(target.get(), options, longer_requests());
      EXPECT_EQ(tokens_of(drafted), tokens_of(cut));
      for (const auto& [other, one] : drafted) {
        EXPECT_EQ(one.stopped, cut.at(other).stopped);
        EXPECT_EQ(one.states.size(), cut.at(other).states.size());
      }
    }
  }
}

// Sampled answers differ from those without a draft, but not with what stands beside them.
TEST(Speculation, SampledAnswersDependOnPromptSeedAndDraftAlone) {
  const std::string model = "qwen3_moe";
  const auto target = load(model);
  ASSERT_NE(target, nullptr);
  const auto draft = load_draft(*target, model);
  NativeGeneratorOptions options = usual();
  options.sampling = {1.0, 0.95, 50, 0.001, 1.1};
  options.draft = draft.get();
  const Answers wanted = answers_of(target.get(), options, longer_requests());
  EXPECT_GT(counts_of(wanted).accepted, 0);
  auto backwards = longer_requests();
  std::reverse(backwards.begin(), backwards.end());
  options.parallel = 3;
  options.prompt_rows = 1;
  EXPECT_EQ(tokens_of(answers_of(target.get(), options, backwards)), tokens_of(wanted));
}

/// How often each token comes second, over many seeds.
std::vector<double> second_tokens(ResidentTarget* target, const NativeGeneratorOptions& options, int seeds) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < seeds; ++i)
    requests.push_back({static_cast<std::size_t>(i), {5, 17, 40}, 3, static_cast<std::uint32_t>(i + 1)});
  std::vector<double> count(static_cast<std::size_t>(target->config().vocab));
  for (const auto& [tag, answer] : answers_of(target, options, requests))
    ++count[static_cast<std::size_t>(answer.tokens[1])];
  return count;
}

// Two samples, one with a draft: chi squared of their difference. The first token comes from the prompt's
// pass; the second is the first that a draft proposes.
TEST(Speculation, SampledAnswersAreDistributedAsWithoutADraft) {
  const std::string model = "llama_tied";
  const auto target = load(model);
  ASSERT_NE(target, nullptr);
  const auto draft = load_draft(*target, model);
  NativeGeneratorOptions options = usual();
  options.parallel = 200;
  options.sampling.temperature = 1;
  const std::vector<double> plain = second_tokens(target.get(), options, 6000);
  options.draft = draft.get();
  const std::vector<double> drafted = second_tokens(target.get(), options, 6000);
  double statistic = 0, cells = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double both = plain[i] + drafted[i], apart = plain[i] - drafted[i];
    if (both >= 20) statistic += apart * apart / both, ++cells;
  }
  EXPECT_GT(cells, 5);
  EXPECT_LT(statistic, cells + 4.5 * std::sqrt(2 * cells) + 4);
}

}  // namespace
}  // namespace eaglet
