#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/metrics_text.h"
#include "client/question.h"
#include "client/retry.h"
#include "client/server_facts.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HttpReply reply_of(int status, const std::string& body = "") {
  HttpReply reply;
  reply.status = status;
  reply.body = body;
  return reply;
}

HttpReply failure_of(HttpFailure failure) {
  HttpReply reply;
  reply.failure = failure;
  reply.error = "it broke";
  return reply;
}

TEST(Retry, WhatIsWorthIt) {
  for (const int status : {408, 409, 425, 429, 500, 502, 503, 504, 529})
    EXPECT_TRUE(worth_retrying(reply_of(status))) << status;
  for (const int status : {200, 400, 401, 403, 404, 413, 422, 501})
    EXPECT_FALSE(worth_retrying(reply_of(status))) << status;
  for (const HttpFailure failure : {HttpFailure::kNoConnection, HttpFailure::kTimeout, HttpFailure::kBroken})
    EXPECT_TRUE(worth_retrying(failure_of(failure)));
  for (const HttpFailure failure : {HttpFailure::kNoHost, HttpFailure::kTls})
    EXPECT_FALSE(worth_retrying(failure_of(failure)));
}

TEST(Retry, WaitsDoubleWithJitterAndTheServersWishWins) {
  Rng rng(7);
  const RetryPolicy policy{.first_wait_seconds = 1, .longest_wait_seconds = 60};
  double least = 1e9, most = 0;
  for (int i = 0; i < 200; ++i) {
    const double wait = seconds_before_retry(policy, 3, reply_of(500), &rng);
    least = std::min(least, wait);
    most = std::max(most, wait);
  }
  EXPECT_GE(least, 2.0);
  EXPECT_LE(most, 4.0);
  EXPECT_GT(most - least, 1.0);
  EXPECT_LE(seconds_before_retry(policy, 40, reply_of(500), &rng), 60.0);
  HttpReply asked = reply_of(429);
  asked.retry_after_seconds = 17;
  EXPECT_EQ(seconds_before_retry(policy, 1, asked, &rng), 17);
  asked.retry_after_seconds = 1e6;
  EXPECT_EQ(seconds_before_retry(policy, 1, asked, &rng), 600);
}

TEST(Retry, LimitHalvesOnceASecondAndGrowsBack) {
  ConcurrencyLimit limit(64);
  limit.was_busy(100.0);
  limit.was_busy(100.5);
  EXPECT_EQ(limit.limit(), 32u);
  limit.was_busy(101.1);
  EXPECT_EQ(limit.limit(), 16u);
  for (int i = 0; i < 17; ++i) limit.succeeded();
  EXPECT_EQ(limit.limit(), 17u);
  for (int i = 0; i < 10000; ++i) limit.succeeded();
  EXPECT_EQ(limit.limit(), 64u);
  for (int i = 0; i < 20; ++i) limit.was_busy(200.0 + 2 * i);
  EXPECT_EQ(limit.limit(), 1u);
}

TEST(Metrics, SamplesOfAPage) {
  const auto samples = parse_metrics(
      "# HELP a b\n# TYPE a counter\na_total{model=\"m\\\"x\",position=\"0\"} 12.0\na_total{position=\"1\",} "
      "3 1700000000\n"
      "plain 1e3\nnan_one NaN\nbroken{x=\"1\" 4\nno_number\n 5\nlast 7");
  ASSERT_EQ(samples.size(), 5u);
  EXPECT_EQ(samples[0].labels.at("model"), "m\"x");
  EXPECT_EQ(metric_sum(samples, "a_total", -1), 15);
  EXPECT_EQ(metric_sum(samples, "plain", -1), 1000);
  EXPECT_EQ(metric_sum(samples, "nan_one", -1), -1);
  EXPECT_EQ(metric_sum(samples, "absent", -1), -1);
  EXPECT_EQ(samples[4].name, "last");
}

TEST(Server, Addresses) {
  EXPECT_EQ(*server_address("http://h:8000"), "http://h:8000");
  EXPECT_EQ(*server_address("https://h:8000/v1/"), "https://h:8000");
  EXPECT_EQ(*server_address("http://h/base/v1/chat/completions"), "http://h/base");
  for (const char* url : {"h:8000", "ftp://h", "http://", ""}) EXPECT_FALSE(server_address(url).ok()) << url;
}

TEST(Server, ErrorsInAllShapes) {
  int code = 0;
  EXPECT_EQ(error_message(R"({"error":{"message":"too long","code":400}})", &code), "too long");
  EXPECT_EQ(code, 400);
  EXPECT_EQ(error_message(R"({"object":"error","message":"m","code":404})", &code), "m");
  EXPECT_EQ(code, 404);
  EXPECT_EQ(error_message(R"({"detail":[{"loc":1}]})", &code), R"([{"loc":1}])");
  EXPECT_EQ(error_message(R"({"error":"plain"})", &code), "plain");
  EXPECT_EQ(error_message("<html>", &code), "<html>");
  EXPECT_EQ(code, 0);
}

class Asked : public testing::Test {
 protected:
  ServedAnswer chat(const std::string& body, int status = 200) {
    server_.kind = ServerKind::kVllm;
    Asking asking;
    asking.messages = Json::array({{{"role", "user"}, {"content", "q"}}});
    Question question(server_, sampling_, asking);
    EXPECT_EQ(question.path(), "/v1/chat/completions");
    EXPECT_TRUE(question.take(reply_of(status, body)));
    return question.answer();
  }
  static std::string choice(const std::string& message, const std::string& finish = "stop") {
    return R"({"choices":[{"message":)" + message + R"(,"finish_reason":")" + finish + R"("}]})";
  }
  ServerFacts server_{.url = "http://h", .kind = ServerKind::kVllm, .model = "m"};
  Sampling sampling_;
};

TEST_F(Asked, ThinkingUnderEveryName) {
  for (const char* message :
       {R"({"content":"4","reasoning_content":"two"})", R"({"content":"4","reasoning":"two"})",
        R"({"content":"4","reasoning":"two","reasoning_content":"two"})",
        R"({"content":"<think>\ntwo\n</think>\n\n4"})", R"({"content":"two</think>4"})"}) {
    const ServedAnswer answer = chat(choice(message));
    EXPECT_EQ(answer.outcome, Outcome::kAnswer) << message;
    EXPECT_EQ(answer.turn, (Json{{"role", "assistant"}, {"content", "4"}, {"reasoning_content", "two"}}))
        << message;
    EXPECT_FALSE(answer.cut);
  }
  EXPECT_FALSE(chat(choice(R"({"content":"ok","reasoning":null})")).turn.contains("reasoning_content"));
}

TEST_F(Asked, CutEmptyAndRefused) {
  ServedAnswer answer = chat(choice(R"({"content":null,"reasoning":"First I"})", "length"));
  EXPECT_EQ(answer.outcome, Outcome::kAnswer);
  EXPECT_TRUE(answer.cut && answer.cut_while_thinking);
  answer = chat(choice(R"({"content":"The answer","reasoning":"Plan."})", "length"));
  EXPECT_TRUE(answer.cut && !answer.cut_while_thinking);
  answer = chat(choice(R"({"content":"<think>\nLet me"})", "length"));
  EXPECT_TRUE(answer.cut && answer.cut_while_thinking);
  EXPECT_EQ(answer.turn["content"], "");
  EXPECT_EQ(chat(choice(R"({"content":"","reasoning":""})")).outcome, Outcome::kEmpty);
  EXPECT_EQ(chat(choice(R"({"content":null,"reasoning":"only thinking"})")).outcome, Outcome::kEmpty);
  EXPECT_EQ(chat(R"({"choices":[]})").outcome, Outcome::kEmpty);
  EXPECT_EQ(chat(R"({"object":"error","message":"too long","code":400})").outcome, Outcome::kRefused);
  EXPECT_EQ(chat(R"({"object":"error","message":"too long","code":400})").message, "too long");
  EXPECT_EQ(chat(R"({"error":{"message":"busy","code":503}})").outcome, Outcome::kBroken);
  EXPECT_EQ(chat(R"({"error":{"message":"bad","code":400}})", 400).outcome, Outcome::kRefused);
  EXPECT_EQ(chat("", 500).outcome, Outcome::kBroken);
}

TEST_F(Asked, WrongTypesAndBrokenBodiesAreSurvived) {
  for (const char* body :
       {"", "null", "[]", "{", "7", R"({"choices":{}})", R"({"choices":[7]})", R"({"choices":[{}]})",
        R"({"choices":[{"message":[]}]})", R"({"choices":[{"message":{"content":7}}]})",
        R"({"choices":[{"message":{"content":"a","reasoning":5}}]})",
        R"({"choices":[{"message":{"content":null,"tool_calls":7}}]})"})
    EXPECT_EQ(chat(body).outcome, Outcome::kBroken) << body;
  const ServedAnswer odd =
      chat(R"({"choices":[{"message":{"content":"a"},"token_ids":[1,"2"]}],"prompt_token_ids":7})");
  EXPECT_EQ(odd.outcome, Outcome::kAnswer);
  EXPECT_FALSE(odd.has_ids());
}

TEST_F(Asked, ToolCallsAndIds) {
  const ServedAnswer answer = chat(
      R"({"prompt_token_ids":[1,2],"choices":[{"message":{"content":null,"tool_calls":[{"id":"c","type":"function",)"
      R"("function":{"name":"f","arguments":"{\"a\": 1}"}}]},"finish_reason":"tool_calls","token_ids":[3,4]}]})");
  EXPECT_EQ(answer.outcome, Outcome::kAnswer);
  EXPECT_EQ(answer.turn["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_THAT(answer.prompt_ids, ElementsAre(1, 2));
  EXPECT_THAT(answer.answer_ids, ElementsAre(3, 4));
  EXPECT_TRUE(answer.has_ids());
}

TEST_F(Asked, LlamaServerTakesThreeRequests) {
  server_.kind = ServerKind::kLlama;
  Asking asking;
  asking.messages = Json::array({{{"role", "user"}, {"content", "q"}}});
  Question question(server_, sampling_, asking);
  EXPECT_EQ(question.path(), "/apply-template");
  EXPECT_FALSE(question.take(reply_of(200, R"({"prompt":"<u>q<a><think>\n"})")));
  EXPECT_EQ(question.path(), "/tokenize");
  EXPECT_THAT(question.body(), HasSubstr("\"parse_special\":true"));
  EXPECT_FALSE(question.take(reply_of(200, R"({"tokens":[5,6]})")));
  EXPECT_EQ(question.path(), "/completion");
  EXPECT_THAT(question.body(), HasSubstr("\"prompt\":[5,6]"));
  EXPECT_TRUE(
      question.take(reply_of(200, R"({"content":"hm</think>yes","tokens":[7,8,2],"stop_type":"eos"})")));
  EXPECT_EQ(question.answer().turn["reasoning_content"], "hm");
  EXPECT_EQ(question.answer().turn["content"], "yes");
  EXPECT_THAT(question.answer().prompt_ids, ElementsAre(5, 6));
  EXPECT_THAT(question.answer().answer_ids, ElementsAre(7, 8, 2));
}

TEST_F(Asked, SglangRendersHereAndTokenisesThere) {
  server_.kind = ServerKind::kSglang;
  Asking asking;
  asking.prompt_text = "<u>q<a>";
  Question question(server_, sampling_, asking);
  EXPECT_EQ(question.path(), "/tokenize");
  EXPECT_FALSE(question.take(reply_of(200, R"({"tokens":[5,6],"count":2})")));
  EXPECT_EQ(question.path(), "/generate");
  EXPECT_TRUE(question.take(reply_of(
      200, R"({"text":"yes","output_ids":[7],"meta_info":{"finish_reason":{"type":"stop","matched":2}}})")));
  EXPECT_THAT(question.answer().answer_ids, ElementsAre(7, 2));
  EXPECT_FALSE(question.answer().ended_by_stop);
}

TEST(Health, OneLine) {
  EXPECT_EQ(health_text(
                reply_of(200),
                reply_of(200, "vllm:num_requests_running{engine=\"0\"} 12\nvllm:num_requests_waiting 40\n")),
            "health 200, 12 running, 40 waiting");
  EXPECT_THAT(health_text(failure_of(HttpFailure::kTimeout), reply_of(404)), HasSubstr("it broke"));
}

}  // namespace
}  // namespace eaglet
