#include "generate/talk_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/test_directory.h"
#include "generate/answer_file.h"
#include "generate/turn_journal.h"

namespace eaglet {
namespace {

using testing::ElementsAre;

Json said(const std::string& content) {
  return {{"role", "assistant"}, {"content", content}};
}
Json called(const std::string& id) {
  Json turn = said("");
  turn["tool_calls"] =
      Json::array({{{"id", id}, {"function", {{"name", "f"}, {"arguments", Json::object()}}}}});
  return turn;
}
Prompt prompt_of(Json messages) {
  Prompt prompt;
  prompt.id = "p";
  prompt.messages = std::move(messages);
  return prompt;
}
Json user(const std::string& content) {
  return {{"role", "user"}, {"content", content}};
}

TEST(TalkPlan, OneQuestionAtTheEnd) {
  TalkPlan plan(prompt_of(Json::array({user("a"), said("b"), user("c")})), Regenerate::kNone);
  ASSERT_TRUE(plan.next());
  EXPECT_EQ(plan.history().size(), 3u);
  ASSERT_TRUE(plan.next()) << "asking for the same question again changes nothing";
  plan.answer(said("d"), false);
  EXPECT_FALSE(plan.next());
  EXPECT_THAT(plan.own_turns(), ElementsAre(3u));
}

TEST(TalkPlan, EveryTurnAnew) {
  TalkPlan plan(prompt_of(Json::array(
                    {said("Welcome"), user("a"), said("b"), user("c"), said("d"), said("e"), user("f")})),
                Regenerate::kAll);
  ASSERT_TRUE(plan.next());
  EXPECT_EQ(plan.history(), Json::array({said("Welcome"), user("a")}));
  plan.answer(said("B"), false);
  ASSERT_TRUE(plan.next());
  EXPECT_EQ(plan.history(), Json::array({said("Welcome"), user("a"), said("B"), user("c")}));
  plan.answer(said("D"), false);
  ASSERT_TRUE(plan.next());
  EXPECT_EQ(plan.history().back(), user("f")) << "a second answer of the source is left out";
  plan.answer(said("F"), false);
  EXPECT_FALSE(plan.next());
  EXPECT_THAT(plan.own_turns(), ElementsAre(2u, 4u, 6u));
}

TEST(TalkPlan, ACutAnswerEndsTheTalk) {
  TalkPlan plan(prompt_of(Json::array({user("a"), said("b"), user("c")})), Regenerate::kAll);
  ASSERT_TRUE(plan.next());
  plan.answer(said("B"), true);
  EXPECT_FALSE(plan.next());
}

Json tool_talk() {
  return Json::array({user("w?"),
                      called("c1"),
                      {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "3"}},
                      said("3."),
                      user("bye")});
}

TEST(TalkPlan, ResultsOfToolsAreTakenFromTheSource) {
  TalkPlan plan(prompt_of(tool_talk()), Regenerate::kAll);
  ASSERT_TRUE(plan.next());
  plan.answer(called("new"), false);
  ASSERT_TRUE(plan.next());
  EXPECT_EQ(plan.history().back()["content"], "3");
  EXPECT_EQ(plan.history().back()["tool_call_id"], "new");
  plan.answer(said("three"), false);
  ASSERT_TRUE(plan.next());
  EXPECT_EQ(plan.history().back(), user("bye"));
}

TEST(TalkPlan, WithoutACallTheResultIsLeftOut) {
  TalkPlan plan(prompt_of(tool_talk()), Regenerate::kAll);
  ASSERT_TRUE(plan.next());
  plan.answer(said("about three"), false);
  ASSERT_TRUE(plan.next());
  EXPECT_EQ(plan.history(), Json::array({user("w?"), said("about three"), user("bye")}));
}

TEST(TalkPlan, ACallThatNobodyAnsweredEndsTheTalk) {
  TalkPlan plan(prompt_of(Json::array({user("w?"), said("3."), user("bye")})), Regenerate::kAll);
  ASSERT_TRUE(plan.next());
  plan.answer(called("new"), false);
  EXPECT_FALSE(plan.next());
}

TEST(AnswerFile, PartsOfOnePrompt) {
  EXPECT_EQ(part_id("a", 1, 1), "a");
  EXPECT_EQ(part_id("a", 2, 3), "a#2/3");
  EXPECT_EQ(whole_id("a#2/3"), (std::pair<std::string, std::size_t>("a", 3)));
  for (const char* id : {"a", "a#b/c", "a#4/3", "a#0/3", "a#/3", "a#1/1", "a/3"})
    EXPECT_EQ(whole_id(id).first, id) << id;

  const std::string path = test_directory() + "/c.jsonl";
  Conversation row;
  row.input_ids = {1, 2};
  row.loss_mask = {0, 1};
  row.prompt_hash = "h";
  std::vector<Conversation> rows(2, row);
  rows[0].id = "a#1/2";
  rows[1].id = "a#2/2";
  {
    auto file = AnswerFile::open(path, Json::object());
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_TRUE(file->append(rows[0]).ok());  // as if a kill had come between the two
    EXPECT_FALSE(file->has("a"));
  }
  auto file = AnswerFile::open(path, Json::object());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_FALSE(file->has("a"));
  ASSERT_TRUE(file->append(rows).ok());
  EXPECT_TRUE(file->has("a"));
  EXPECT_EQ(file->prompt_hash("a"), "h");
  EXPECT_EQ(file->totals().answers, 2) << "the first part was there already";
}

TEST(TurnJournal, KeepsWhatWasAnsweredAndForgetsAnotherTalk) {
  const std::string path = test_directory() + "/turns.jsonl";
  ServedAnswer answer;
  answer.turn = said("yes");
  answer.turn["reasoning_content"] = "hm";
  answer.prompt_ids = {1, 2};
  answer.answer_ids = {3};
  answer.answer_tokens = 1;
  {
    auto journal = TurnJournal::open(path);
    ASSERT_TRUE(journal.ok());
    EXPECT_TRUE(journal->answers("p", "h").empty());
    ASSERT_TRUE(journal->append("p", "h", answer).ok());
    ASSERT_TRUE(journal->append("p", "h", answer).ok());
  }
  auto journal = TurnJournal::open(path);
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  ASSERT_EQ(journal->answers("p", "h").size(), 2u);
  EXPECT_EQ(journal->answers("p", "h")[1].turn, answer.turn);
  EXPECT_THAT(journal->answers("p", "h")[1].prompt_ids, ElementsAre(1, 2));
  EXPECT_TRUE(journal->answers("p", "other").empty());
  ASSERT_TRUE(journal->remove().ok());
  EXPECT_FALSE(path_exists(path));
}

}  // namespace
}  // namespace eaglet
