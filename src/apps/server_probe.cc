#include "apps/server_probe.h"

#include <fmt/format.h>

#include <cstdlib>

#include "formats/json.h"

namespace eaglet::apps {
namespace {

constexpr double kTokenSeconds = 10;

}  // namespace

Result<ServerProbe> ServerProbe::open(const std::string& url) {
  EAGLET_ASSIGN_OR_RETURN(std::string address, server_address(url));
  HttpPoolOptions options;
  options.connections = 1;
  if (const char* key = std::getenv("EAGLET_API_KEY"); key != nullptr) options.bearer = key;
  EAGLET_ASSIGN_OR_RETURN(auto pool, HttpPool::create(options));
  return ServerProbe(std::move(pool), std::move(address));
}

ServerProbe::Look ServerProbe::look() {
  Look look;
  look.readiness = look_at_server(*pool_, url_, {});
  if (look.readiness.reached != ReadyRung::kReady) {
    const auto next = static_cast<ReadyRung>(static_cast<int>(look.readiness.reached) + 1);
    look.missing = rung_name(next) + ": " + look.readiness.problem;
    return look;
  }
  const Json request = {{"model", look.readiness.facts.model}, {"prompt", "1"}, {"max_tokens", 1}};
  const HttpReply done = pool_->fetch({.url = url_ + "/v1/completions",
                                       .body = json_line(request),
                                       .timeout_seconds = kTokenSeconds,
                                       .connect_seconds = kTokenSeconds / 2});
  int code = 0;
  look.completes = done.ok();
  if (!done.ok())
    look.missing = done.status == 0 ? "one token: " + done.error
                                    : fmt::format("one token: /v1/completions says {}: {}", done.status,
                                                  error_message(done.body, &code));
  return look;
}

}  // namespace eaglet::apps
