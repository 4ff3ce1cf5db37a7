#include "monitor/server_metrics.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "base/files.h"
#include "monitor/http.h"
#include "monitor/prometheus.h"
#include "monitor/sampler.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {
namespace {

/// As vLLM writes it, of two engines, with a histogram, a creation time and what we do not know.
constexpr const char* kVllm =
    R"(# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="some/model, \"odd\" {name}"} 24.0
vllm:num_requests_running{engine="1",model_name="m"} 8.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.6
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+06 1772615790412
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 300
vllm:spec_decode_num_drafts_total{engine="0"} 100
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 130
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 7
python_gc_objects_collected_total{generation="0"} 11742.0
vllm:broken{model="no end} 1
vllm:also_broken
)";

TEST(ServerMetrics, WhatEachServerTells) {
  const ServerMoment vllm = server_moment(kVllm);
  ASSERT_TRUE(vllm.known);
  EXPECT_EQ(vllm.kind, "vLLM");
  EXPECT_EQ(vllm.running, 32) << "of both engines";
  EXPECT_EQ(vllm.waiting, 4);
  EXPECT_EQ(vllm.cache_share, 0.5) << "a share is no sum";
  EXPECT_EQ(vllm.generated_tokens, 1.5e6);
  EXPECT_EQ(vllm.drafts, 100);
  const ServerMoment llama = server_moment(
      "# HELP llamacpp:prompt_tokens_total n\n# TYPE llamacpp:prompt_tokens_total counter\n"
      "llamacpp:prompt_tokens_total 12\nllamacpp:tokens_predicted_total 30\nllamacpp:n_decode_total 40\n"
      "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n");
  EXPECT_EQ(llama.kind, "llama-server");
  EXPECT_EQ(llama.passes, 40);
  EXPECT_EQ(llama.waiting, 2);
  EXPECT_TRUE(std::isnan(llama.cache_share));
  const ServerMoment sglang = server_moment(
      "sglang:num_running_reqs{a=\"b\"} 3\nsglang:token_usage 0.28\nsglang:spec_accept_length 2.1\n");
  EXPECT_EQ(sglang.kind, "SGLang");
  EXPECT_EQ(sglang.accepted_length, 2.1);
}

TEST(ServerMetrics, RealPages) {
  const auto page = read_file(EAGLET_TESTDATA "/watch/servers/vllm-0.32.0.txt");
  ASSERT_TRUE(page.ok());
  const ServerMoment moment = server_moment(*page);
  EXPECT_EQ(moment.running, 0);
  EXPECT_EQ(moment.waiting, 0) << "not the same again by reason";
  EXPECT_EQ(moment.prompt_tokens, 11538);
  EXPECT_EQ(moment.generated_tokens, 29354);
  EXPECT_EQ(moment.cache_share, 0);
  const auto other = read_file(EAGLET_TESTDATA "/watch/servers/llama-server-0c1e570.txt");
  ASSERT_TRUE(other.ok());
  const ServerMoment llama = server_moment(*other);
  EXPECT_EQ(llama.running, 1);
  EXPECT_EQ(llama.generated_tokens, 120);
  EXPECT_EQ(llama.passes, 225) << "it counts tokens when a request is done, passes at once";
}

TEST(ServerMetrics, AnyCutAndAnyGarbage) {
  const std::string page = kVllm;
  for (std::size_t cut = 0; cut < page.size(); ++cut) (void)server_moment(page.substr(0, cut));
  for (const char* text : {"", "\n\n", "<html>vllm:</html>", "vllm:num_requests_running", "vllm:x{",
                           "vllm: 1", "vllm:num_requests_running NaN", "vllm:num_requests_running{a=\"\\"})
    EXPECT_FALSE(server_moment(text).known) << text;
}

TEST(HttpGet, Addresses) {
  EXPECT_EQ(http_address("http://gpu7:8000/v1")->host, "gpu7");
  EXPECT_EQ(http_address("http://gpu7:8000/v1")->port, 8000);
  EXPECT_EQ(http_address("http://[::1]:30000")->host, "::1");
  EXPECT_EQ(http_address("http://h")->port, 80);
  for (const char* wrong : {"https://h", "http://", "http://:1", "http://h:x", "http://h:0", "http://h:70000",
                            "http://a@b:1", "h:8000"})
    EXPECT_EQ(http_address(wrong).status().code(), StatusCode::kUsage) << wrong;
}

/// A server that answers /metrics with what it is given; ended with the object.
class Answering {
 public:
  explicit Answering(std::function<HttpReply(const HttpRequest&)> answer) {
    auto server = HttpServer::listen("127.0.0.1:0", std::move(answer));
    EXPECT_TRUE(server.ok());
    server_ = std::move(*server);
    url_ = server_->url();
    thread_ = std::thread([this] {
      while (!done_) server_->serve(0.02);
    });
  }
  ~Answering() {
    done_ = true;
    thread_.join();
  }
  const std::string& url() const { return url_; }
  int port() const { return http_address(url_)->port; }

 private:
  std::unique_ptr<HttpServer> server_;
  std::string url_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

TEST(HttpGet, WhatIsAnsweredAndWhatIsNot) {
  const Answering server([](const HttpRequest& request) {
    HttpReply reply;
    reply.status = request.path == "/metrics" ? 200 : 404;
    reply.body = std::string(100000, 'x');
    reply.events = request.path == "/stream";
    return reply;
  });
  const auto answer = http_get("127.0.0.1", server.port(), "/metrics", 5);
  ASSERT_TRUE(answer.ok()) << answer.status().what();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body.size(), 100000u);
  EXPECT_EQ(http_get("127.0.0.1", server.port(), "/nothing", 5)->status, 404);
  EXPECT_EQ(http_get("127.0.0.1", server.port(), "/stream", 0.2).status().code(), StatusCode::kUnavailable)
      << "it never ends";
  EXPECT_EQ(http_get("127.0.0.1", 1, "/metrics", 1).status().code(), StatusCode::kUnavailable);
}

Verdict look(const std::string& url, double between) {
  const ProcReader reader;
  auto target = resolve_target(url, reader);
  EXPECT_TRUE(target.ok()) << target.status().what();
  // This test itself listens there, and writes to a log that may tell of anything.
  target->roots.clear();
  target->log_path.clear();
  Sampler sampler(*target, reader, nullptr);
  sampler.sample();
  std::this_thread::sleep_for(std::chrono::duration<double>(between));
  sampler.sample();
  return make_verdict(sampler.series(), Thresholds());
}

TEST(ServerMetrics, AServerThatIsNamedByItsAddress) {
  std::atomic<int> asked = 0;
  const Answering server([&](const HttpRequest&) {
    const int n = ++asked;
    HttpReply reply;
    reply.body = "vllm:num_requests_running 32\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total " +
                 std::to_string(10000 * n) +
                 "\nvllm:prompt_tokens_total 500\nvllm:spec_decode_num_drafts_total " +
                 std::to_string(1000 * n) + "\nvllm:spec_decode_num_accepted_tokens_total " +
                 std::to_string(20 * n) + "\n";
    return reply;
  });
  const Verdict verdict = look(server.url(), 5.1);
  EXPECT_STREQ(state_word(verdict.state.state), "RUNNING") << verdict.headline;
  EXPECT_STREQ(phase_word(verdict.state.phase), "serve");
  EXPECT_NE(verdict.state.cause.find("serves: 32 running, 0 waiting"), std::string::npos)
      << verdict.state.cause;
  EXPECT_NEAR(verdict.activity.server.generated_tokens_per_second, 10000 / 5.1, 200);
  EXPECT_NEAR(verdict.activity.server.accepted_length, 1.02, 1e-9) << "what speculation brings there";
}

TEST(ServerMetrics, OneThatDoesNotTell) {
  const Answering server([](const HttpRequest&) {
    HttpReply reply;
    reply.status = 501;
    return reply;
  });
  const Verdict verdict = look(server.url(), 0.1);
  EXPECT_STREQ(state_word(verdict.state.state), "UNKNOWN");
  EXPECT_NE(verdict.headline.find("start llama-server with --metrics"), std::string::npos)
      << verdict.headline;
}

}  // namespace
}  // namespace eaglet::monitor
