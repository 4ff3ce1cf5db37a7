#include "monitor/prometheus.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "monitor/http.h"
#include "monitor/saved_views.h"

namespace eaglet::monitor {
namespace {

TEST(Prometheus, StrictParserTakesWhatWeWrite) {
  for (const char* run : {"a", "b", "c", "d", "e", "f", "g"}) {
    auto series = read_saved_views({EAGLET_TESTDATA "/cases/16-alive-stuck-or-dead/" + std::string(run)});
    ASSERT_TRUE(series.ok());
    series->name = "odd \"name\"\\\nof a run";
    const std::string text = prometheus_text(make_verdict(*series, Thresholds()), "0.1.0");
    const auto samples = parse_prometheus(text);
    ASSERT_TRUE(samples.ok()) << samples.status().message() << "\n" << text;
    bool stalled = false;
    for (const PrometheusSample& sample : *samples) {
      EXPECT_EQ(sample.labels.at("run"), series->name);
      EXPECT_EQ(sample.labels.count("pid") + sample.labels.count("step") + sample.labels.count("path"), 0u);
      if (sample.name == "eaglet_run_state" && sample.labels.at("state") == "stalled")
        stalled = sample.value == 1;
    }
    EXPECT_EQ(stalled, std::string(run) == "b" || std::string(run) == "c");
  }
}

TEST(Prometheus, TheParserIsStrict) {
  EXPECT_FALSE(parse_prometheus("# TYPE a gauge\na 1").ok()) << "no last newline";
  EXPECT_FALSE(parse_prometheus("a 1\n").ok()) << "no TYPE";
  EXPECT_FALSE(parse_prometheus("# TYPE a gauge\n# TYPE a gauge\na 1\n").ok());
  EXPECT_FALSE(parse_prometheus("# TYPE a gauge\n# TYPE b gauge\na 1\nb 1\na{x=\"y\"} 2\n").ok())
      << "not together";
  EXPECT_FALSE(parse_prometheus("# TYPE 9a gauge\n9a 1\n").ok());
  EXPECT_FALSE(parse_prometheus("# TYPE a gauge\na{x=y} 1\n").ok());
  const auto samples = parse_prometheus("# TYPE a gauge\na{x=\"q\\\"\\\\\\n\"} NaN\n");
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ(samples->front().labels.at("x"), "q\"\\\n");
  EXPECT_TRUE(std::isnan(samples->front().value));
}

TEST(Http, ServerAndClient) {
  auto server = HttpServer::listen("127.0.0.1:0", [](const HttpRequest& request) {
    HttpReply reply;
    reply.body = request.path + "?" + (request.query.count("q") != 0 ? request.query.at("q") : "");
    if (request.path == "/nothing") reply.status = 404;
    return reply;
  });
  ASSERT_TRUE(server.ok()) << server.status().message();
  const std::string url = (*server)->url();
  std::atomic<bool> done = false;
  std::thread serving([&] {
    while (!done) (*server)->serve(0.05);
  });
  const auto answer = http_request(url, "/a%20b?q=1%2B2", "", 5);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "/a b?1+2");
  EXPECT_EQ(http_request(url, "/nothing", "", 5)->status, 404);
  EXPECT_EQ(http_request(url, "/", "a body", 5)->status, 405);
  done = true;
  serving.join();
  EXPECT_FALSE(http_request("http://127.0.0.1:1", "/", "", 1).ok());
  EXPECT_EQ(HttpServer::listen("nowhere:x", nullptr).status().code(), StatusCode::kUsage);
}

TEST(Http, AWiderAddressNeedsItsToken) {
  auto server = HttpServer::listen("0.0.0.0:0", [](const HttpRequest&) { return HttpReply(); });
  ASSERT_TRUE(server.ok());
  const std::string url = (*server)->url();
  const std::size_t token = url.find("?token=");
  ASSERT_NE(token, std::string::npos) << url;
  const std::string local =
      "http://127.0.0.1:" + url.substr(url.rfind(':') + 1, token - 1 - url.rfind(':') - 1);
  std::atomic<bool> done = false;
  std::thread serving([&] {
    while (!done) (*server)->serve(0.05);
  });
  EXPECT_EQ(http_request(local, "/", "", 5)->status, 403);
  EXPECT_EQ(http_request(local, "/" + url.substr(token), "", 5)->status, 200);
  done = true;
  serving.join();
}

}  // namespace
}  // namespace eaglet::monitor
