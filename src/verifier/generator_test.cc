#include "verifier/generator.h"

#include <map>

#include "verifier/chat_template.h"
#include "verifier/sample_target.h"

namespace eaglet {
namespace {

std::vector<std::int32_t> prompt_tokens(const std::string& question) {
  auto chat = ChatTemplate::open(*sample_target());
  if (!chat.ok()) return {};
  auto prompt = (*chat)->render({{{"role", "user"}, {"content", question}}});
  return *sample_target()->tokenize(prompt->text, sample_target()->adds_bos());
}

std::map<std::size_t, GeneratedAnswer> answer(const std::vector<GenerationRequest>& requests,
                                              GeneratorOptions options) {
  auto generator = Generator::create(*sample_target(), options);
  EXPECT_TRUE(generator.ok()) << generator.status().message();
  std::map<std::size_t, GeneratedAnswer> all;
  std::size_t next = 0;
  const Status status = (*generator)
                            ->run(
                                [&]() -> std::optional<GenerationRequest> {
                                  if (next == requests.size()) return std::nullopt;
                                  return requests[next++];
                                },
                                [&](const GeneratedAnswer& one) {
                                  EXPECT_FALSE(all.contains(one.tag));
                                  all[one.tag] = one;
                                  return Status();
                                },
                                [](std::int64_t, int) { return Status(); });
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

TEST(ChatTemplate, RendersTheModelsOwnTemplate) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  auto chat = ChatTemplate::open(*sample_target());
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  auto plain = (*chat)->render({{{"role", "user"}, {"content", "Hi"}}});
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(
      plain->text,
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(plain->thinking_start.empty());
  auto with_system = (*chat)->render(
      {{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "Hi"}}});
  ASSERT_TRUE(with_system.ok());
  EXPECT_EQ(
      with_system->text,
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  auto tokens = sample_target()->tokenize(with_system->text, sample_target()->adds_bos());
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->front(), 1);  // <|im_start|> as one token, and nothing put before it
  EXPECT_EQ(sample_target()->piece(2, true), "<|im_end|>");
  EXPECT_TRUE(sample_target()->ends(2));
}

TEST(Generator, AnswersDoNotDependOnNeighboursOrOrder) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  const std::vector<std::string> questions = {"What is the capital of France?", "Say hello.",
                                              "Name a colour."};
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < questions.size(); ++i)
    requests.push_back({i, prompt_tokens(questions[i]), 8, 0});
  GeneratorOptions together{.parallel = 2,
                            .longest_sequence = 256};  // fewer slots than requests: one is refilled
  auto all = answer(requests, together);
  ASSERT_EQ(all.size(), 3u);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_LE(all[i].tokens.size(), 8u);
    EXPECT_EQ(all[i].stopped, sample_target()->ends(all[i].tokens.back()));
    auto alone = answer({requests[i]}, {.parallel = 1, .longest_sequence = 256});
    // A later token may differ by a tie within rounding (other batch size, other sums); the first ones do not
    // here.
    EXPECT_EQ(alone[i].tokens[0], all[i].tokens[0]) << questions[i];
  }
  std::string first;
  for (const std::int32_t token : all[0].tokens) first += sample_target()->piece(token, false);
  EXPECT_NE(first.find("capital of France"), std::string::npos) << first;
}

TEST(Generator, SeedsFixSampledAnswers) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  const auto prompt = prompt_tokens("Invent a word.");
  const GeneratorOptions sampled{
      .parallel = 1, .longest_sequence = 256, .sampling = {.temperature = 1.2, .top_p = 0.95}};
  const auto run = [&](std::uint32_t seed) { return answer({{0, prompt, 12, seed}}, sampled)[0].tokens; };
  const auto first = run(7);
  EXPECT_EQ(first, run(7));
  EXPECT_NE(first, run(8));
}

// Each further setting alone leaves one token to draw from at the start, so it gives what greedy gives.
TEST(Generator, EverySamplingSettingCounts) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  const auto prompt = prompt_tokens("What is the capital of France?");
  const auto run = [&](SamplingOptions sampling) {
    return answer({{0, prompt, 6, 7}}, {.parallel = 1, .longest_sequence = 256, .sampling = sampling})[0]
        .tokens;
  };
  const auto greedy = run({});
  EXPECT_NE(run({.temperature = 5}), greedy);
  EXPECT_EQ(run({.temperature = 5, .top_k = 1}), greedy);
  EXPECT_EQ(run({.temperature = 5, .min_p = 1}), greedy);
  EXPECT_NE(run({.repetition_penalty = 10}), greedy);  // the question's words are not said again
}

TEST(Generator, StopsWhenTheCallerFails) {
  EAGLET_NEEDS_SAMPLE_MODEL();
  auto generator = Generator::create(*sample_target(), {.parallel = 1, .longest_sequence = 256});
  ASSERT_TRUE(generator.ok());
  bool asked = false;
  const Status status = (*generator)
                            ->run(
                                [&]() -> std::optional<GenerationRequest> {
                                  if (std::exchange(asked, true)) return std::nullopt;
                                  return GenerationRequest{0, prompt_tokens("Hi"), 4, 0};
                                },
                                [](const GeneratedAnswer&) { return Status(); },
                                [](std::int64_t, int) { return Status(StatusCode::kInterrupted, "enough"); });
  EXPECT_EQ(status.code(), StatusCode::kInterrupted);
}

TEST(Target, SaysWhyAModelCannotBeLoaded) {
  auto missing = Target::load("/no/such/model.gguf");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace eaglet
