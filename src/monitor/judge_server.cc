// A server of a language model: what it has to do, and whether it does it.
#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "monitor/judges.h"
#include "monitor/server_activity.h"

namespace eaglet::monitor {

Judgements judge_server(const Case& c) {
  const ServerActivity& server = c.activity.server;
  if (!server.known) {
    if (server.trouble.empty()) return {};
    return {process_judgement("server", Level::kUnknown, server.trouble)};
  }
  Judgement j = process_judgement("server", Level::kOk, server.kind + ": " + server_text(server));
  j.value = server.requests();
  j.unit = "requests";
  j.window_seconds = c.activity.span_seconds;
  j.threshold =
      fmt::format("warn: requests wait and the KV cache is over {:.0f} % full, or no answer for {}",
                  100 * c.thresholds.cache_warn, human_duration(c.thresholds.server_silent_seconds));
  if (server.silent_seconds > c.thresholds.server_silent_seconds) {
    j.level = Level::kWarn;
    j.reason = fmt::format("{} has not answered GET /metrics for {}: {}", server.kind,
                           human_duration(server.silent_seconds), server.trouble);
    j.advice = "its front end hangs or has more to do than it can: look at its log, and at its processes";
  } else if (server.waiting > 0 && server.cache_share > c.thresholds.cache_warn) {
    j.level = Level::kWarn;
    j.reason += ": requests wait for room in the KV cache";
    j.advice = "fewer requests at once, shorter ones, or more memory for it (vLLM: --gpu-memory-utilization)";
  }
  return {j};
}

}  // namespace eaglet::monitor
