#include "generate/native_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "generate/toy_answers_test.h"
#include "target/target_forward.h"
#include "tensor/dtype.h"

namespace eaglet {
namespace {

/// The whole sequence through the target from its beginning, for every token anew.
std::vector<std::int32_t> greedy_the_long_way(TargetForward* forward, const GenerationRequest& request) {
  std::vector<std::int32_t> tokens = request.prompt;
  const std::int64_t hidden = forward->config().hidden, layers = forward->config().num_layers;
  for (std::int64_t i = 0; i < request.max_tokens; ++i) {
    std::vector<float> last, logits;
    EXPECT_TRUE(forward
                    ->run({&tokens}, layers,
                          [&](std::int64_t k, const float* x) {
                            const auto end = static_cast<std::int64_t>(tokens.size()) * hidden;
                            if (k == layers) last.assign(x + end - hidden, x + end);
                            return Status();
                          })
                    .ok());
    EXPECT_TRUE(forward->logits(1, last.data(), &logits).ok());
    tokens.push_back(
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), tokens.end()};
}

TEST(NativeGenerator, GreedyAnswersAreThoseOfTheWholeSequence) {
  for (const std::string model : kModels) {
    SCOPED_TRACE(model);
    const auto target = load(model);
    auto forward = TargetForward::open(folder_of(model));
    ASSERT_TRUE(target != nullptr && forward.ok());
    const Answers answers = answers_of(target.get(), usual(), some_requests());
    for (const GenerationRequest& request : some_requests()) {
      EXPECT_EQ(answers.at(request.tag).tokens, greedy_the_long_way(forward->get(), request)) << request.tag;
      EXPECT_FALSE(answers.at(request.tag).stopped);
    }
  }
}

// Neither how many are decoded together, nor their order, nor how little room there is, nor how prompts are
// shared out to the steps.
TEST(NativeGenerator, AnswersDependOnPromptAndSeedAlone) {
  for (const std::string model : kModels)
    for (const double temperature : {0.0, 1.0}) {
      SCOPED_TRACE(model + " at temperature " + std::to_string(temperature));
      const auto target = load(model);
      ASSERT_NE(target, nullptr);
      NativeGeneratorOptions options = usual();
      options.sampling = {temperature, 0.95, 50, 0.001, 1.1};
      const auto wanted = tokens_of(answers_of(target.get(), options, some_requests()));
      auto backwards = some_requests();
      std::reverse(backwards.begin(), backwards.end());
      EXPECT_EQ(tokens_of(answers_of(target.get(), options, backwards)), wanted);
      options.prompt_rows = 1;
      options.parallel = 100;
      EXPECT_EQ(tokens_of(answers_of(target.get(), options, some_requests())), wanted);
      options.prompt_rows = 512;
      options.cache_bytes = 2 * SequenceCache::bytes(target->config(), false, 64);
      int most = 0;
      EXPECT_EQ(tokens_of(answers_of(target.get(), options, some_requests(), &most)), wanted);
      EXPECT_EQ(most, 2);
      options.parallel = 1;
      EXPECT_EQ(tokens_of(answers_of(target.get(), options, some_requests())), wanted);
    }
}

TEST(NativeGenerator, EndTokensEndAnAnswerAndStayInIt) {
  const auto target = load("llama_tied");
  ASSERT_NE(target, nullptr);
  const Answers whole = answers_of(target.get(), usual(), some_requests());
  const std::vector<std::int32_t>& longest = whole.at(3).tokens;
  ASSERT_GE(longest.size(), 3u);
  NativeGeneratorOptions options = usual();
  options.ends = [&](std::int32_t token) { return token == longest[2]; };
  const auto first = std::find(longest.begin(), longest.end(), longest[2]);
  const Answers cut = answers_of(target.get(), options, some_requests());
  EXPECT_EQ(cut.at(3).tokens, std::vector<std::int32_t>(longest.begin(), first + 1));
  EXPECT_TRUE(cut.at(3).stopped);
}

// bf16 of what the target's forward says of the whole conversation, its last token included.
TEST(NativeGenerator, KeptStatesAreThoseOfTheConversation) {
  for (const std::string model : kModels) {
    SCOPED_TRACE(model);
    const auto target = load(model);
    auto forward = TargetForward::open(folder_of(model));
    ASSERT_TRUE(target != nullptr && forward.ok());
    const std::int64_t hidden = target->config().hidden, layers = target->config().num_layers;
    NativeGeneratorOptions options = usual();
    options.kept_layers = {1, 0};
    const Answers plain = answers_of(target.get(), usual(), some_requests()),
                  kept = answers_of(target.get(), options, some_requests());
    for (const GenerationRequest& request : some_requests()) {
      const GeneratedAnswer& answer = kept.at(request.tag);
      EXPECT_EQ(answer.tokens, plain.at(request.tag).tokens);
      std::vector<std::int32_t> all = request.prompt;
      all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
      ASSERT_EQ(answer.states.size(), all.size() * 3 * static_cast<std::size_t>(hidden));
      double farthest = 0, largest = 0;
      ASSERT_TRUE((*forward)
                      ->run({&all}, layers,
                            [&](std::int64_t k, const float* x) {
                              const std::int64_t slot = k == 1 ? 0 : k == 0 ? 1 : k == layers ? 2 : -1;
                              for (std::int64_t i = 0;
                                   slot >= 0 && i < static_cast<std::int64_t>(all.size()) * hidden; ++i) {
                                const std::int64_t at = (i / hidden * 3 + slot) * hidden + i % hidden;
                                const double found = static_cast<double>(
                                    bf16_to_f32(answer.states[static_cast<std::size_t>(at)]));
                                farthest = std::max(farthest, std::fabs(found - static_cast<double>(x[i])));
                                largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
                              }
                              return Status();
                            })
                      .ok());
      EXPECT_LT(farthest, largest / 256);  // half a step of bf16
    }
  }
}

TEST(NativeGenerator, SaysWhatDoesNotFit) {
  const auto target = load("llama_tied");
  ASSERT_NE(target, nullptr);
  NativeGeneratorOptions options = usual();
  options.cache_bytes = SequenceCache::bytes(target->config(), false, 64) - 1;
  Answers answers;
  const Status status = run(target.get(), options, some_requests(), &answers);
  EXPECT_EQ(status.code(), StatusCode::kNoSpace);
  EXPECT_NE(status.what().find("of cache"), std::string::npos) << status.what();
  EXPECT_TRUE(answers.empty());
  // Kept states count: room for the caches alone is not enough.
  options.cache_bytes = SequenceCache::bytes(target->config(), false, 64);
  EXPECT_TRUE(run(target.get(), options, some_requests(), &answers).ok());
  options.kept_layers = {1};
  answers.clear();
  EXPECT_EQ(run(target.get(), options, some_requests(), &answers).code(), StatusCode::kNoSpace);
}

TEST(NativeGenerator, StopsWhenTheCallerFails) {
  const auto target = load("llama_tied");
  ASSERT_NE(target, nullptr);
  const auto generator = make_native_generator(target.get(), usual());
  const auto requests = some_requests();
  std::size_t next = 0;
  const Status status =
      generator->run([&]() -> std::optional<GenerationRequest> { return requests[next++ % requests.size()]; },
                     [](const GeneratedAnswer&) { return Status(); },
                     [&](std::int64_t tokens, int) {
                       return tokens > 20 ? Status(StatusCode::kInterrupted, "enough") : Status();
                     });
  EXPECT_EQ(status.code(), StatusCode::kInterrupted);
}

}  // namespace
}  // namespace eaglet
