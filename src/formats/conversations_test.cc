#include "formats/conversations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/test_directory.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string temporary_file(const std::string& content) {
  const std::string path = test_directory() + "/rows.jsonl";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string reason_of(std::string_view line) {
  const auto parsed = parse_conversation(line);
  return parsed.ok() ? "" : parsed.status().what();
}

std::string prompt_reason_of(std::string_view line) {
  const auto parsed = parse_prompt(line);
  return parsed.ok() ? "" : parsed.status().what();
}

TEST(Conversations, OwnRow) {
  const auto row =
      parse_conversation(R"({"id":"a","input_ids":[1,2,3,4],"loss_mask":[0,0,1,1],"finish_reason":"stop",)"
                         R"("messages":[{"role":"user","content":"hi"}],"text":"yo"})");
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->id, "a");
  EXPECT_THAT(row->input_ids, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(row->loss_mask, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(row->finish_reason, "stop");
  EXPECT_EQ(row->text, "yo");
  EXPECT_EQ(row->prompt_tokens(), 2);
}

TEST(Conversations, PromptAndResponseForm) {
  const auto row = parse_conversation(R"({"id":7,"prompt_ids":[5,6],"response_ids":[9],"stop":"limit"})");
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->id, "7");
  EXPECT_THAT(row->input_ids, ElementsAre(5, 6, 9));
  EXPECT_THAT(row->loss_mask, ElementsAre(0, 0, 1));
  EXPECT_EQ(row->finish_reason, "length");
  EXPECT_EQ(
      parse_conversation(R"({"id":"e","prompt_ids":[5],"response_ids":[],"stop":"eos"})")->finish_reason,
      "stop");
}

TEST(Conversations, WrittenLineReadsBackTheSame) {
  Conversation c;
  c.id = "x\n\"y";
  c.input_ids = {0, 2147483647};
  c.loss_mask = {0, 1};
  c.finish_reason = "length";
  c.messages = Json::array({{{"role", "assistant"}, {"content", "a"}, {"reasoning_content", "b"}}});
  c.text = "n\xC3\xA9\xE2\x80\xA8 end";
  const std::string line = conversation_line(c);
  EXPECT_EQ(line.find('\n'), line.npos);
  const auto back = parse_conversation(line);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->id, c.id);
  EXPECT_EQ(back->input_ids, c.input_ids);
  EXPECT_EQ(back->loss_mask, c.loss_mask);
  EXPECT_EQ(back->finish_reason, c.finish_reason);
  EXPECT_EQ(back->messages, c.messages);
  EXPECT_EQ(back->text, c.text);
}

TEST(Conversations, OddBytesInAnAnswerAreReplacedNotThrown) {
  Conversation c;
  c.id = "x";
  c.input_ids = {1};
  c.loss_mask = {1};
  c.text = "half a character \xE2\x80";
  const auto back = parse_conversation(conversation_line(c));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_THAT(back->text, HasSubstr("half a character \xEF\xBF\xBD"));
  EXPECT_THAT(reason_of("{\"id\":\"\xff\xfe\",\"input_ids\":[1],\"loss_mask\":[1]}"),
              HasSubstr("not valid JSON"));
}

TEST(Conversations, EveryReasonNamesTheField) {
  EXPECT_THAT(reason_of("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(reason_of(R"({"id":"","input_ids":[1],"loss_mask":[1]})"), HasSubstr("'id' is empty"));
  EXPECT_THAT(reason_of(R"({"id":[1],"input_ids":[1],"loss_mask":[1]})"), HasSubstr("'id' is [1]"));
  EXPECT_THAT(reason_of(R"({"id":"a"})"), HasSubstr("'input_ids' is missing"));
  EXPECT_THAT(reason_of(R"({"id":"a","input_ids":[1]})"), HasSubstr("'loss_mask' is missing"));
  EXPECT_THAT(reason_of(R"({"id":"a","input_ids":"1 2","loss_mask":[1]})"),
              HasSubstr("'input_ids' is \"1 2\""));
  EXPECT_THAT(reason_of(R"({"id":"a","input_ids":[1,2],"loss_mask":[1]})"),
              HasSubstr("1 entries but 'input_ids' has 2"));
  EXPECT_THAT(reason_of(R"({"id":"a","input_ids":[],"loss_mask":[]})"), HasSubstr("no tokens"));
  EXPECT_THAT(reason_of(R"({"id":"a","prompt_ids":[1]})"), HasSubstr("'response_ids' is missing"));
  for (const char* value : {"-1", "2147483648", "18446744073709551615", "-9223372036854775808", "1.0", "1e3",
                            "true", "\"1\"", "null", "[1]"})
    EXPECT_THAT(reason_of(std::string(R"({"id":"a","input_ids":[5,)") + value + R"(],"loss_mask":[0,1]})"),
                HasSubstr("'input_ids' entry 1"))
        << value;
  for (const char* value : {"2", "-1", "0.5", "true", "null"})
    EXPECT_THAT(reason_of(std::string(R"({"id":"a","input_ids":[5],"loss_mask":[)") + value + "]}"),
                HasSubstr("'loss_mask' entry 0"))
        << value;
  const std::string start = R"({"id":"a","input_ids":[1],"loss_mask":[1],)";
  EXPECT_THAT(reason_of(start + R"("finish_reason":"done"})"), HasSubstr("'finish_reason'"));
  EXPECT_THAT(reason_of(start + R"("finish_reason":3})"), HasSubstr("'finish_reason'"));
  EXPECT_THAT(reason_of(start + R"("stop":"maybe"})"), HasSubstr("'stop'"));
  EXPECT_THAT(reason_of(start + R"("messages":"user: hi"})"), HasSubstr("'messages'"));
  EXPECT_THAT(reason_of(start + R"("messages":[{"content":"x"}]})"), HasSubstr("without a role"));
  EXPECT_THAT(reason_of(start + R"("text":[]})"), HasSubstr("'text'"));
  EXPECT_THAT(reason_of(start + R"("x":1e999})"), HasSubstr("JSON"));
  EXPECT_THAT(reason_of(start + R"("x":)" + std::string(100000, '[')), HasSubstr("nested deeper"));
}

TEST(Conversations, BrokenLinesAreCountedAndTheRestGoesOn) {
  const std::string good = R"({"id":"a","input_ids":[1,2],"loss_mask":[0,1]})";
  const std::string path =
      temporary_file(good + "\n\n{\"id\": \"cut\n" + R"({"id":"b","input_ids":[3],"loss_mask":[1]})" +
                     "\r\n" + good + "\n" + good.substr(0, 20));
  const auto file = read_conversations(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->conversations.size(), 2u);
  EXPECT_EQ(file->conversations[1].id, "b");
  ASSERT_EQ(file->broken.size(), 3u);
  EXPECT_EQ(file->broken[0].line, 3u);
  EXPECT_EQ(file->broken[1].line, 5u);
  EXPECT_THAT(file->broken[1].reason, HasSubstr("used by an earlier line"));
  EXPECT_EQ(file->broken[2].line, 6u);
  EXPECT_THAT(file->broken[2].reason, HasSubstr("last line has no end"));
  EXPECT_EQ(file->lines, file->conversations.size() + file->broken.size() + file->blank_lines);
}

TEST(Conversations, CutAtEveryByteGivesRowsOrAnError) {
  const std::string row = R"({"id":"a","input_ids":[1,2],"loss_mask":[0,1],"text":"é"})";
  for (std::size_t length = 0; length <= row.size(); ++length) {
    const auto parsed = parse_conversation(std::string_view(row).substr(0, length));
    EXPECT_EQ(parsed.ok(), length == row.size()) << length;
  }
}

TEST(Conversations, NothingUsableIsAnError) {
  EXPECT_EQ(read_conversations("/nonexistent/file").status().code(), StatusCode::kNotFound);
  const std::string empty = temporary_file("");
  EXPECT_EQ(read_conversations(empty).status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(read_prompts(empty).status().what(), HasSubstr("holds no prompt"));
  const auto broken = read_conversations(temporary_file("\n{}\n"));
  EXPECT_EQ(broken.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(broken.status().what(), HasSubstr("line 2: field 'input_ids' is missing"));
}

TEST(Prompts, MessagesAndIds) {
  const auto prompt = parse_prompt(
      R"({"id":"p","messages":[{"role":"System","content":"s"},{"role":"USER","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(prompt->messages[0]["role"], "system");
  EXPECT_EQ(prompt->messages[1]["content"], "ab");
  const auto ids = parse_prompt(R"({"id":"p","prompt_ids":[4,5],"response_ids":[1],"stop":"eos"})");
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_THAT(ids->prompt_ids, ElementsAre(4, 5));
  EXPECT_TRUE(ids->messages.is_null());
}

TEST(Prompts, WithoutAnIdTheContentNamesThem) {
  const auto plain = parse_prompt(R"({"messages":[{"role":"user","content":"hi"}]})");
  const auto other = parse_prompt(R"({"conversations":[{"from":"human","value":"hi"}]})");
  const auto different = parse_prompt(R"({"prompt":"hello"})");
  ASSERT_TRUE(plain.ok() && other.ok() && different.ok());
  EXPECT_EQ(plain->id, other->id);
  EXPECT_EQ(plain->hash(), other->hash());
  EXPECT_NE(plain->id, different->id);
  EXPECT_EQ(parse_prompt(R"({"uuid":"u7","prompt":"hello"})")->id, "u7");
}

TEST(Prompts, AnswersAtTheEndCanBeDroppedOrWrittenAnew) {
  const std::string talk =
      R"({"id":"t","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
      R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}]})";
  EXPECT_THAT(prompt_reason_of(talk), HasSubstr("--regenerate last"));
  EXPECT_EQ(parse_prompt(talk, Regenerate::kLast)->messages.size(), 3u);
  EXPECT_EQ(parse_prompt(talk, Regenerate::kAll)->messages.size(), 4u);
  EXPECT_FALSE(regenerate_from_name("some").ok());
}

TEST(Prompts, Reasons) {
  EXPECT_THAT(prompt_reason_of(R"({"messages":[]})"), HasSubstr("'messages' is empty"));
  EXPECT_THAT(prompt_reason_of(R"({"id":"p"})"), HasSubstr("'messages' is missing"));
  EXPECT_THAT(prompt_reason_of(R"({"id":"p","messages":[]})"), HasSubstr("'messages' is empty"));
  EXPECT_THAT(prompt_reason_of(R"({"id":"p","messages":[{"role":"critic","content":"x"}]})"),
              HasSubstr("role \"critic\""));
  EXPECT_THAT(prompt_reason_of(R"({"id":"p","messages":[{"role":"system","content":"x"}]})"),
              HasSubstr("nothing to answer"));
  EXPECT_THAT(prompt_reason_of(R"({"id":"p","messages":[{"role":"user","content":null}]})"),
              HasSubstr("no content"));
  EXPECT_THAT(prompt_reason_of(R"({"id":"p","messages":[{"role":"user","content":[{"type":"image"}]}]})"),
              HasSubstr("no text"));
  EXPECT_THAT(prompt_reason_of(R"({"id":"p","prompt_ids":[]})"), HasSubstr("'prompt_ids' is empty"));
  EXPECT_THAT(prompt_reason_of(R"({"id":"p","prompt_ids":[-1]})"), HasSubstr("'prompt_ids' entry 0"));
}

// A file of odd rows; as prompts only the rows that end with a user turn can be answered.
TEST(Prompts, OddFile) {
  const auto file = read_prompts(EAGLET_TESTDATA "/cases/04-odd-conversations/conversations.jsonl");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->lines, 18u);
  EXPECT_EQ(file->blank_lines, 1u);
  ASSERT_EQ(file->prompts.size(), 1u);
  EXPECT_EQ(file->prompts[0].id, "n7");
  EXPECT_EQ(file->broken.size(), 16u);
  std::map<std::uint64_t, std::string> reasons;
  for (const BrokenLine& broken : file->broken) reasons[broken.line] = broken.reason;
  EXPECT_THAT(reasons[9], HasSubstr("\"critic\""));
  EXPECT_THAT(reasons[11], HasSubstr("not valid JSON"));
  EXPECT_THAT(reasons[17], HasSubstr("must be a list"));
}

}  // namespace
}  // namespace eaglet
