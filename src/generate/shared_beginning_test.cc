#include "generate/shared_beginning.h"

#include <gtest/gtest.h>

#include <cmath>

#include "generate/toy_answers_test.h"
#include "generate/toy_draft_test.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

// One beginning of 24 tokens, then a few of their own; numbers 2 and 5 have nothing in common with others.
std::vector<GenerationRequest> alike(std::int64_t shared = 24) {
  std::vector<GenerationRequest> all;
  for (std::size_t i = 0; i < 7; ++i) {
    GenerationRequest request;
    request.tag = i;
    const auto own = static_cast<std::int32_t>(i == 2 || i == 5 ? 31 * i : 0);
    for (std::int32_t t = 0; t < shared; ++t) request.prompt.push_back((t * 7 + own) % 90);
    for (std::size_t t = 0; t <= i * 3 % 5; ++t)
      request.prompt.push_back(static_cast<std::int32_t>((i * 17 + t + 1) % 90));
    request.max_tokens = static_cast<std::int64_t>(3 + i);
    request.seed = static_cast<std::uint32_t>(i);
    all.push_back(request);
  }
  return all;
}

// Each by itself: there is no other sequence to take anything from.
Answers one_by_one(ResidentTarget* target, const NativeGeneratorOptions& options,
                   const std::vector<GenerationRequest>& requests) {
  Answers all;
  for (const GenerationRequest& request : requests) {
    all.merge(answers_of(target, options, {request}));
    EXPECT_EQ(all.at(request.tag).reused_tokens, 0);
  }
  return all;
}

std::int64_t reused(const Answers& answers) {
  std::int64_t sum = 0;
  for (const auto& [tag, answer] : answers) sum += answer.reused_tokens;
  return sum;
}

// Rows may have been computed beside others: sums round differently, and a number between two of bf16 may
// then fall to the other.
void expect_alike(const std::vector<std::uint16_t>& found, const std::vector<std::uint16_t>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double a = static_cast<double>(bf16_to_f32(found[i])),
                 b = static_cast<double>(bf16_to_f32(wanted[i]));
    ASSERT_LE(std::fabs(a - b), std::fabs(b) / 128 + 1e-6) << i;
  }
}

TEST(SharedBeginning, AnswersAndStatesAreThoseOfEachPromptAlone) {
  for (const std::string model : kModels)
    for (const int parallel : {1, 3, 16})
      for (const bool drafted : {false, true}) {
        SCOPED_TRACE(model + ", " + std::to_string(parallel) + " together" +
                     (drafted ? ", with a draft" : ""));
        const auto target = load(model);
        ASSERT_NE(target, nullptr);
        const auto draft = load_draft(*target, model);
        NativeGeneratorOptions options = usual();
        options.kept_layers = {1, 0};
        if (drafted) options.draft = draft.get();
        const Answers wanted = one_by_one(target.get(), options, alike());
        options.parallel = parallel;
        const Answers found = answers_of(target.get(), options, alike());
        EXPECT_EQ(tokens_of(found), tokens_of(wanted));
        for (const auto& [tag, answer] : found) {
          SCOPED_TRACE(tag);
          expect_alike(answer.states, wanted.at(tag).states);
        }
        // All but the first and the two strangers; with a draft the last shared row is computed again.
        EXPECT_EQ(reused(found), 4 * (drafted ? 23 : 24));
      }
}

TEST(SharedBeginning, SampledAnswersAreTheSame) {
  const auto target = load("qwen3_moe");
  ASSERT_NE(target, nullptr);
  NativeGeneratorOptions options = usual();
  options.sampling = {1.0, 0.95, 50, 0.001, 1.1};
  const Answers wanted = one_by_one(target.get(), options, alike());
  EXPECT_EQ(tokens_of(answers_of(target.get(), options, alike())), tokens_of(wanted));
}

// A conversation's next turn begins with the turns before and their answers.
TEST(SharedBeginning, AConversationGoesOnWhereItsAnswerEnded) {
  const auto target = load("llama_tied");
  ASSERT_NE(target, nullptr);
  std::vector<GenerationRequest> turns(2);
  turns[0].prompt = {5, 17, 40, 3, 22, 8, 9, 61, 34, 2};
  turns[0].max_tokens = 20;
  const std::vector<std::int32_t> answer = answers_of(target.get(), usual(), {turns[0]}).at(0).tokens;
  turns[1].tag = 1;
  turns[1].prompt = turns[0].prompt;
  turns[1].prompt.insert(turns[1].prompt.end(), answer.begin(), answer.end());
  turns[1].prompt.insert(turns[1].prompt.end(), {7, 70});
  turns[1].max_tokens = 9;
  NativeGeneratorOptions options = usual();
  options.parallel = 1;
  const Answers found = answers_of(target.get(), options, turns);
  EXPECT_EQ(found.at(1).reused_tokens, 29);  // the answer's last token never went through the target
  EXPECT_EQ(found.at(1).tokens, answers_of(target.get(), usual(), {turns[1]}).at(1).tokens);
}

TEST(SharedBeginning, APromptThatIsAllThereLeavesItsLastTokenToTheTarget) {
  const auto target = load("llama_tied");
  ASSERT_NE(target, nullptr);
  std::vector<GenerationRequest> twice = {alike()[0], alike()[0]};
  twice[1].tag = 1;
  NativeGeneratorOptions options = usual();
  options.parallel = 1;
  const Answers found = answers_of(target.get(), options, twice);
  EXPECT_EQ(found.at(1).reused_tokens, static_cast<std::int64_t>(twice[1].prompt.size()) - 1);
  EXPECT_EQ(found.at(1).tokens, found.at(0).tokens);
}

TEST(SharedBeginning, FewRowsAreNotTakenOver) {
  const auto target = load("llama_tied");
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(reused(answers_of(target.get(), usual(), alike(kLeastSharedRows - 1))), 0);
  EXPECT_EQ(reused(answers_of(target.get(), usual(), alike(kLeastSharedRows))), 4 * kLeastSharedRows);
}

// Finished sequences never take room from one that could run.
TEST(SharedBeginning, FinishedSequencesGiveWay) {
  const auto target = load("llama_tied");
  ASSERT_NE(target, nullptr);
  NativeGeneratorOptions options = usual();
  const Answers wanted = one_by_one(target.get(), options, alike());
  options.cache_bytes = SequenceCache::bytes(target->config(), false, 64);
  int most = 0;
  const Answers found = answers_of(target.get(), options, alike(), &most);
  EXPECT_EQ(tokens_of(found), tokens_of(wanted));
  EXPECT_EQ(most, 1);
  EXPECT_EQ(reused(found), 0);
}

}  // namespace
}  // namespace eaglet
