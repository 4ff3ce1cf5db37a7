#include "apps/server_probe.h"

#include "formats/json.h"
#include "monitor/http.h"

namespace eaglet::apps {
namespace {

std::string first_model(const std::string& body) {
  const auto json = parse_json(body);
  if (!json.ok() || !json->is_object() || !json->contains("data") || !(*json)["data"].is_array() ||
      (*json)["data"].empty())
    return {};
  const Json& model = (*json)["data"][0];
  return model.is_object() && model.contains("id") && model["id"].is_string() ? model["id"].get<std::string>()
                                                                              : std::string();
}

std::string said(const Result<monitor::HttpAnswer>& answer) {
  return answer.ok() ? "says " + std::to_string(answer->status) : answer.status().what();
}

}  // namespace

ServerRung probe_server(const std::string& url, double patience_seconds) {
  ServerRung rung;
  const auto health = monitor::http_request(url, "/health", "", patience_seconds);
  if (!health.ok() && health.status().what() == "nothing listens there") {
    rung.missing = "nothing listens at " + url;
    return rung;
  }
  rung.reached = 1;
  // A server without /health (404) may still be one.
  if (!health.ok() || (health->status != 200 && health->status != 404)) {
    rung.missing = "GET /health " + said(health) + (health.ok() && health->status == 503 ? ": loading" : "");
    return rung;
  }
  rung.reached = 2;
  const auto models = monitor::http_request(url, "/v1/models", "", patience_seconds);
  if (models.ok() && models->status == 200) rung.model = first_model(models->body);
  if (rung.model.empty()) {
    rung.missing = "GET /v1/models " + said(models) + ", no model";
    return rung;
  }
  rung.reached = 3;
  const Json request = {{"model", rung.model}, {"prompt", "1"}, {"max_tokens", 1}};
  const auto done = monitor::http_request(url, "/v1/completions", request.dump(), patience_seconds);
  if (!done.ok() || done->status != 200) {
    rung.missing = "POST /v1/completions " + said(done);
    return rung;
  }
  rung.reached = kServerReady;
  return rung;
}

}  // namespace eaglet::apps
