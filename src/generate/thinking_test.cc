#include "generate/thinking.h"

#include <gtest/gtest.h>

namespace eaglet {
namespace {

RenderedPrompt thinker(bool open) {
  return {"", "<think>", {"</think>"}, open};
}

TEST(SplitAnswer, ThinkingIsKeptAsTokensAndMarked) {
  const SplitAnswer split =
      split_answer({"<think>", "\n", "two and", " two", "</think>", "\n\n", "Four", "."}, thinker(false));
  EXPECT_EQ(split.text, "<think>\ntwo and two</think>\n\nFour.");
  EXPECT_EQ(split.reasoning, "two and two");
  EXPECT_EQ(split.content, "Four.");
  EXPECT_EQ(split.reasoning_begin, 0u);
  EXPECT_EQ(split.reasoning_end, 5u);
}

TEST(SplitAnswer, PromptOpenedTheThinking) {
  const SplitAnswer split = split_answer({"hm", "</think>", "Yes"}, thinker(true));
  EXPECT_EQ(split.reasoning, "hm");
  EXPECT_EQ(split.content, "Yes");
  EXPECT_EQ(split.reasoning_end, 2u);
}

TEST(SplitAnswer, ThinkingCutByLengthHasNoContent) {
  const SplitAnswer split = split_answer({"<think>", "long", " thought"}, thinker(false));
  EXPECT_EQ(split.reasoning, "long thought");
  EXPECT_EQ(split.content, "");
  EXPECT_EQ(split.reasoning_end, 3u);
}

TEST(SplitAnswer, MarkersInsideAnAnswerAreText) {
  const SplitAnswer later = split_answer({"Write ", "<think>", " first"}, thinker(false));
  EXPECT_FALSE(later.has_reasoning());
  EXPECT_EQ(later.content, "Write <think> first");
  const SplitAnswer none = split_answer({"<think>", "x"}, RenderedPrompt{});
  EXPECT_FALSE(none.has_reasoning());
}

TEST(SplitAnswer, MarkerSpreadOverTokens) {
  const SplitAnswer split = split_answer({"<th", "ink>", "a", "</", "think>", "b"}, thinker(false));
  EXPECT_EQ(split.reasoning, "a");
  EXPECT_EQ(split.content, "b");
  EXPECT_EQ(split.reasoning_end, 5u);
}

}  // namespace
}  // namespace eaglet
