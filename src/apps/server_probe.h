#pragma once

#include <string>

namespace eaglet::apps {

/// How far a server of an OpenAI-compatible interface has come; each rung needs the one before.
struct ServerRung {
  int reached = 0;      // 0 nothing, 1 TCP answers, 2 healthy, 3 lists models, 4 completes a token
  std::string missing;  // which rung failed and how: "GET /health says 503: loading"
  std::string model;    // the first model it lists
};
constexpr int kServerReady = 4;

/// `url` is "http://host:port". Each request waits at most `patience_seconds`.
ServerRung probe_server(const std::string& url, double patience_seconds);

}  // namespace eaglet::apps
