#include "apps/server_probe.h"

#include <fmt/format.h>

#include <cstdlib>

#include "client/server_facts.h"
#include "formats/json.h"

namespace eaglet::apps {
namespace {

constexpr double kTokenSeconds = 10;

class HttpServerProbe : public ServerProbe {
 public:
  HttpServerProbe(std::unique_ptr<HttpPool> pool, std::string url)
      : pool_(std::move(pool)), url_(std::move(url)) {}

  Look look() override {
    const Readiness readiness = look_at_server(*pool_, url_, {});
    Look look;
    look.address = readiness.reached > ReadyRung::kAddress;
    look.connection = readiness.reached >= ReadyRung::kConnection;
    look.health = readiness.reached >= ReadyRung::kHealth;
    look.ready = readiness.reached >= ReadyRung::kReady;
    look.final = readiness.final;
    look.model = readiness.facts.model;
    if (!look.ready) {
      const auto next = static_cast<ReadyRung>(static_cast<int>(readiness.reached) + 1);
      look.missing = rung_name(next) + ": " + readiness.problem;
      return look;
    }
    ask_for_a_token(&look);
    return look;
  }

 private:
  void ask_for_a_token(Look* look) {
    const Json request = {{"model", look->model}, {"prompt", "1"}, {"max_tokens", 1}};
    const HttpReply done = pool_->fetch({.url = url_ + "/v1/completions",
                                         .body = json_line(request),
                                         .timeout_seconds = kTokenSeconds,
                                         .connect_seconds = kTokenSeconds / 2});
    int code = 0;
    look->completes = done.ok();
    if (!done.ok())
      look->missing = done.status == 0 ? "one token: " + done.error
                                       : fmt::format("one token: /v1/completions says {}: {}", done.status,
                                                     error_message(done.body, &code));
  }

  std::unique_ptr<HttpPool> pool_;
  std::string url_;
};

}  // namespace

Result<std::unique_ptr<ServerProbe>> open_server_probe(const std::string& url) {
  EAGLET_ASSIGN_OR_RETURN(std::string address, server_address(url));
  HttpPoolOptions options;
  options.connections = 1;
  if (const char* key = std::getenv("EAGLET_API_KEY"); key != nullptr) options.bearer = key;
  EAGLET_ASSIGN_OR_RETURN(auto pool, HttpPool::create(options));
  return std::unique_ptr<ServerProbe>(std::make_unique<HttpServerProbe>(std::move(pool), std::move(address)));
}

}  // namespace eaglet::apps
