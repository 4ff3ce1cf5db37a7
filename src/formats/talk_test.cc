#include "formats/talk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/conversations.h"
#include "formats/length_limit.h"
#include "formats/reasoning.h"
#include "formats/row_reasons.h"
#include "formats/tool_calls.h"

namespace eaglet {
namespace {

using testing::HasSubstr;

Json turn_of(const std::string& fields) {
  const auto row = parse_json(
      "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\"," + fields + "}]}");
  EXPECT_TRUE(row.ok());
  const auto talk = read_talk(*row);
  EXPECT_TRUE(talk.ok()) << talk.status().message();
  return talk.ok() ? talk->messages[1] : Json::object();
}

std::string refusal(const std::string& row) {
  const auto parsed = parse_answered_row(row);
  return parsed.ok() ? "" : parsed.status().what();
}

TEST(Reasoning, EveryFieldGivesOneShape) {
  const Json expected = {{"role", "assistant"}, {"content", "4"}, {"reasoning_content", "two twos"}};
  for (const char* fields :
       {R"("content":"4","reasoning_content":"two twos")", R"("content":"4","reasoning":"two twos")",
        R"("content":"4","thinking":"two twos")",
        R"("content":"4","reasoning":"two twos","reasoning_content":"two twos")",
        R"("content":"4","reasoning":" two twos\n","reasoning_content":null)",
        R"("content":"<think>\ntwo twos\n</think>\n\n4")",
        R"("content":"<think>two twos</think>4","reasoning":"two twos")",
        R"("content":"[THINK]two twos[/THINK]4")",
        R"("content":[{"type":"thinking","thinking":"two twos"},{"type":"text","text":"4"}])",
        R"("content":"4","reasoning_details":[{"type":"reasoning.text","text":"two twos"}])"})
    EXPECT_EQ(turn_of(fields), expected) << fields;
  EXPECT_EQ(turn_of(R"("content":"4","reasoning":null)"), (Json{{"role", "assistant"}, {"content", "4"}}));
  EXPECT_EQ(turn_of(R"("content":"<think>\n\n</think>\n\n4")"),
            (Json{{"role", "assistant"}, {"content", "4"}}));
  EXPECT_EQ(turn_of(R"("content":"Write <think> first")")["content"], "Write <think> first");
}

TEST(Reasoning, OpenEnds) {
  const auto open = split_inline_thinking("<think>\nLet me", false);
  ASSERT_TRUE(open.has_value());
  EXPECT_FALSE(open->closed);
  EXPECT_EQ(open->reasoning, "Let me");
  EXPECT_EQ(open->content, "");
  EXPECT_FALSE(split_inline_thinking("hm</think>yes", false).has_value());
  const auto begun = split_inline_thinking("hm</think>yes", true);
  ASSERT_TRUE(begun.has_value());
  EXPECT_EQ(begun->reasoning, "hm");
  EXPECT_EQ(begun->content, "yes");
}

TEST(Talk, FormsOfTheSameTalk) {
  const char* forms[] = {
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}]})",
      R"({"messages":[{"role":"User","content":"Hi"},{"role":"ASSISTANT","content":"Hello."}]})",
      R"({"conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Hello."}]})",
      R"({"conversations":[{"role":"user","content":"Hi"},{"role":"assistant","value":"Hello."}]})",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"assistant","content":["Hello."]}]})"};
  std::string first;
  for (const char* form : forms) {
    const auto row = parse_answered_row(form);
    ASSERT_TRUE(row.ok()) << form << row.status().message();
    if (first.empty()) first = row->id;
    EXPECT_EQ(row->id, first) << form;
  }
}

TEST(Talk, ToolCallsInTheirShapes) {
  const std::string call = R"("function":{"name":"f","arguments":)";
  const Json text =
      turn_of(R"("content":null,"tool_calls":[{"id":"c","type":"function",)" + call + R"("{\"a\": 1}"}}])");
  const Json object =
      turn_of(R"("content":null,"tool_calls":[{"id":"c","type":"function",)" + call + R"({"a": 1}}}])");
  EXPECT_EQ(text, object);
  EXPECT_EQ(text["content"], "");
  EXPECT_EQ(turn_of(R"("content":null,"function_call":{"name":"f","arguments":"{\"a\": 1}"})")["tool_calls"]
                                                                                              [0]["function"],
            text["tool_calls"][0]["function"]);
  EXPECT_EQ(with_text_arguments(Json::array({text}))[0]["tool_calls"][0]["function"]["arguments"],
            R"({"a":1})");
  const auto row = parse_answered_row(
      R"({"conversations":[{"from":"human","value":"w?"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"a\":1}}"},)"
      R"({"from":"observation","value":"3"},{"from":"gpt","value":"3."}]})");
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->talk.messages[1]["role"], "assistant");
  EXPECT_EQ(row->talk.messages[1]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_EQ(row->talk.messages[2]["role"], "tool");
  EXPECT_EQ(row->talk.tools, Json());
}

TEST(Talk, RefusalsAndTheirGroups) {
  const std::string user = R"({"messages":[{"role":"user","content":"q"},)";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"messages":[]})", "no turns"},
      {R"({"messages":"user: hi"})", "not a list of turns"},
      {R"({"messages":[{"role":"system","content":"s"}]})", "nothing to learn"},
      {R"({"messages":[{"role":"assistant","content":"Welcome"},{"role":"user","content":"q"}]})",
       "nothing to learn"},
      {user + R"({"role":"critic","content":"x"}]})", "unknown role"},
      {user + R"({"role":"assistant","content":""}]})", "assistant says nothing"},
      {user + R"({"role":"assistant","content":null,"tool_calls":null}]})", "assistant says nothing"},
      {user +
           R"({"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"a\": \"O"}}]}]})",
       "broken tool call"},
      {user + R"({"role":"assistant","content":null,"tool_calls":[{"function":{"arguments":{}}}]}]})",
       "broken tool call"},
      {user + R"({"role":"assistant","content":"<think>never closed"}]})", "cut while thinking"},
      {user + R"({"role":"assistant","content":[{"type":"image_url"}]}]})", "content that is no text"},
      {"{\"messages\":[{\"role\":\"user\"", "not valid JSON"},
      {R"({"id":"x"})", "no turns"}};
  for (const auto& [row, group] : cases) EXPECT_EQ(reason_group(refusal(row)), group) << row << refusal(row);
  EXPECT_THAT(refusal(user + R"({"role":"critic","content":"x"}]})"),
              HasSubstr("turn 2 has the unknown role \"critic\""));
}

TEST(Talk, WarnsOfResultsThatNobodyAskedFor) {
  const auto row = parse_answered_row(
      R"({"id":"g","messages":[{"role":"user","content":"w?"},{"role":"assistant","content":"I look.","tool_calls":)"
      R"([{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_9","content":"3"}]})");
  ASSERT_TRUE(row.ok()) << row.status().message();
  ASSERT_EQ(row->talk.warnings.size(), 1u);
  EXPECT_THAT(row->talk.warnings[0], HasSubstr("call_9"));
  EXPECT_EQ(row->talk.messages[1]["content"], "I look.");
}

TEST(Talk, ToolsAsListOrText) {
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  EXPECT_EQ(*plain_tools({{"tools", tools}}), tools);
  EXPECT_EQ(*plain_tools({{"tools", tools.dump()}}), tools);
  EXPECT_EQ(*plain_tools({{"tools", Json::array({{{"name", "f"}}})}}), tools);
  EXPECT_TRUE(plain_tools({{"tools", ""}})->is_null());
  EXPECT_FALSE(plain_tools({{"tools", "{broken"}}).ok());
}

Conversation supervised(std::size_t tokens, std::size_t first) {
  Conversation c;
  c.input_ids.assign(tokens, 5);
  c.loss_mask.assign(tokens, 0);
  for (std::size_t i = first; i < tokens; ++i) c.loss_mask[i] = 1;
  return c;
}

TEST(LengthLimit, CutsAndTellsWhatIsLeft) {
  Conversation t1 = supervised(40, 36), t2 = supervised(40, 30), t3 = supervised(20, 10),
               t4 = supervised(20, 20);
  EXPECT_EQ(least_useful_limit(t1), 37);
  EXPECT_EQ(cut_to_limit(32, &t1), LimitResult::kNothingLeft);
  EXPECT_EQ(cut_to_limit(32, &t2), LimitResult::kCut);
  EXPECT_EQ(t2.input_ids.size(), 32u);
  EXPECT_EQ(t2.loss_mask.size(), 32u);
  EXPECT_EQ(cut_to_limit(32, &t3), LimitResult::kWhole);
  EXPECT_EQ(cut_to_limit(32, &t4), LimitResult::kNothingSupervised);
  Conversation first_only = supervised(1, 0);
  EXPECT_EQ(cut_to_limit(0, &first_only), LimitResult::kNothingSupervised);
  Conversation exactly = supervised(40, 36);
  EXPECT_EQ(cut_to_limit(37, &exactly), LimitResult::kCut);
}

}  // namespace
}  // namespace eaglet
