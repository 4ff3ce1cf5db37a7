#include "monitor/prometheus.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

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

TEST(Prometheus, TokensAreToldWhereTheRunCountsThem) {
  RunSeries series;
  series.name = "r";
  series.log_known = true;
  EXPECT_EQ(prometheus_text(make_verdict(series, Thresholds()), "0.1.0").find("tokens_total"),
            std::string::npos);
  series.log.metrics["tokens_total"] = {{100, 1, 4.2e5}};
  const auto samples = parse_prometheus(prometheus_text(make_verdict(series, Thresholds()), "0.1.0"));
  ASSERT_TRUE(samples.ok());
  bool found = false;
  for (const PrometheusSample& sample : *samples)
    found |= sample.name == "eaglet_tokens_total" && sample.value == 4.2e5;
  EXPECT_TRUE(found);
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

struct Answer {
  int status = 0;
  std::string body;
};

/// One exchange with a port of this machine, whole in and whole out; status 0 when nobody answers.
Answer ask(int port, const std::string& path, const std::string& body = "") {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string text;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    std::string request = (body.empty() ? "GET " : "POST ") + path +
                          " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                          "\r\nConnection: close\r\n";
    if (!body.empty()) request += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    request += "\r\n" + body;
    EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    char bytes[4096];
    for (ssize_t got; (got = ::recv(fd, bytes, sizeof bytes, 0)) > 0;)
      text.append(bytes, static_cast<std::size_t>(got));
  }
  ::close(fd);
  Answer answer;
  if (text.size() > 12) answer.status = std::atoi(text.c_str() + 9);
  if (const std::size_t end = text.find("\r\n\r\n"); end != std::string::npos)
    answer.body = text.substr(end + 4);
  return answer;
}

int port_of(const std::string& url) {
  return std::atoi(url.c_str() + url.rfind(':') + 1);
}

TEST(Http, Server) {
  auto server = HttpServer::listen("127.0.0.1:0", [](const HttpRequest& request) {
    HttpReply reply;
    reply.body = request.path + "?" + (request.query.count("q") != 0 ? request.query.at("q") : "");
    if (request.path == "/nothing") reply.status = 404;
    return reply;
  });
  ASSERT_TRUE(server.ok()) << server.status().message();
  const int port = port_of((*server)->url());
  std::atomic<bool> done = false;
  std::thread serving([&] {
    while (!done) (*server)->serve(0.05);
  });
  const Answer answer = ask(port, "/a%20b?q=1%2B2");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "/a b?1+2");
  EXPECT_EQ(ask(port, "/nothing").status, 404);
  EXPECT_EQ(ask(port, "/", "a body").status, 405);
  done = true;
  serving.join();
  EXPECT_EQ(HttpServer::listen("nowhere:x", nullptr).status().code(), StatusCode::kUsage);
}

TEST(Http, AWiderAddressNeedsItsToken) {
  auto server = HttpServer::listen("0.0.0.0:0", [](const HttpRequest&) { return HttpReply(); });
  ASSERT_TRUE(server.ok());
  const std::string url = (*server)->url();
  const std::size_t token = url.find("?token=");
  ASSERT_NE(token, std::string::npos) << url;
  const int port = port_of(url);
  std::atomic<bool> done = false;
  std::thread serving([&] {
    while (!done) (*server)->serve(0.05);
  });
  EXPECT_EQ(ask(port, "/").status, 403);
  EXPECT_EQ(ask(port, "/" + url.substr(token)).status, 200);
  done = true;
  serving.join();
}

}  // namespace
}  // namespace eaglet::monitor
