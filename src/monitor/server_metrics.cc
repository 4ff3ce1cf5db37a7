#include "monitor/server_metrics.h"

#include <cmath>
#include <iterator>

#include "monitor/listening.h"
#include "monitor/prometheus.h"
#include "monitor/run_config.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr double kAskEverySeconds = 5, kFindEverySeconds = 10, kPatienceSeconds = 1;

struct Known {
  const char* name;  // without a counter's "_total"
  double ServerMoment::*at;
  bool mean = false;  // a share: not to be summed over engines
};
constexpr Known kKnown[] = {{"vllm:num_requests_running", &ServerMoment::running},
                            {"vllm:num_requests_waiting", &ServerMoment::waiting},
                            {"vllm:prompt_tokens", &ServerMoment::prompt_tokens},
                            {"vllm:generation_tokens", &ServerMoment::generated_tokens},
                            {"vllm:kv_cache_usage_perc", &ServerMoment::cache_share, true},
                            {"vllm:gpu_cache_usage_perc", &ServerMoment::cache_share, true},
                            {"vllm:spec_decode_num_drafts", &ServerMoment::drafts},
                            {"vllm:spec_decode_num_accepted_tokens", &ServerMoment::accepted_tokens},
                            {"llamacpp:requests_processing", &ServerMoment::running},
                            {"llamacpp:requests_deferred", &ServerMoment::waiting},
                            {"llamacpp:prompt_tokens", &ServerMoment::prompt_tokens},
                            {"llamacpp:tokens_predicted", &ServerMoment::generated_tokens},
                            {"llamacpp:n_decode", &ServerMoment::passes},
                            {"llamacpp:kv_cache_usage_ratio", &ServerMoment::cache_share, true},
                            {"llamacpp:spec_decode_num_drafts", &ServerMoment::drafts},
                            {"llamacpp:spec_decode_num_accepted_tokens", &ServerMoment::accepted_tokens},
                            {"sglang:num_running_reqs", &ServerMoment::running},
                            {"sglang:num_queue_reqs", &ServerMoment::waiting},
                            {"sglang:prompt_tokens", &ServerMoment::prompt_tokens},
                            {"sglang:generation_tokens", &ServerMoment::generated_tokens},
                            {"sglang:token_usage", &ServerMoment::cache_share, true},
                            {"sglang:spec_accept_length", &ServerMoment::accepted_length, true}};

const char* kind_of(std::string_view name) {
  if (starts_with(name, "vllm:")) return "vLLM";
  return starts_with(name, "llamacpp:") ? "llama-server" : "SGLang";
}

/// Where a server listens unless told otherwise; 0 for what is none.
int usual_port(const std::string& command) {
  if (contains_any(command, {"llama-server", "llama_cpp.server"})) return 8080;
  if (contains(command, "sglang")) return 30000;
  return contains_any(command, {"vllm serve", "vllm.entrypoints", "vllm/entrypoints"}) ? 8000 : 0;
}

}  // namespace

ServerMoment server_moment(std::string_view page) {
  ServerMoment moment;
  int seen[std::size(kKnown)] = {};
  for (const PrometheusSample& sample : read_foreign_metrics(page, {"vllm:", "llamacpp:", "sglang:"})) {
    std::string_view name = sample.name;
    if (name.ends_with("_total")) name.remove_suffix(6);
    for (std::size_t i = 0; i < std::size(kKnown); ++i) {
      if (name != kKnown[i].name || !std::isfinite(sample.value)) continue;
      double& value = moment.*kKnown[i].at;
      if (seen[i] == 0)
        value = sample.value;
      else
        value = kKnown[i].mean ? (value * seen[i] + sample.value) / (seen[i] + 1) : value + sample.value;
      ++seen[i];
      moment.known = true;
      moment.kind = kind_of(name);
    }
  }
  return moment;
}

void ServerLook::find(const ProcReader& reader, const std::set<std::int64_t>& tree,
                      const std::string& command) {
  HttpAddress wanted{"127.0.0.1", usual_port(command)};
  if (wanted.port == 0) return;
  for (const auto& [key, value] : command_flags(command)) {
    const auto port = whole_number(value);
    if (key == "port" && port && *port > 0 && *port <= 65535) wanted.port = static_cast<int>(*port);
    if (key == "host" && value != "0.0.0.0" && value != "::" && !value.empty()) wanted.host = value;
  }
  const auto sockets = listening_sockets(reader);
  for (const std::int64_t pid : tree)
    for (const auto& file : reader.open_files(pid))
      if (const auto found = sockets.find(file.path);
          found != sockets.end() && found->second.port == wanted.port) {
        address_ = wanted;
        return;
      }
}

void ServerLook::look(const ProcReader& reader, const std::set<std::int64_t>& tree,
                      const std::vector<std::string>& commands, double now, RunView* view) {
  if (!due(now)) return;
  for (const std::string& command : commands)
    if (!has_address()) find(reader, tree, command);
  next_ = now + (has_address() ? kAskEverySeconds : kFindEverySeconds);
  if (!has_address()) return;
  view->server.emplace();
  const auto answer = http_get(address_.host, address_.port, "/metrics", kPatienceSeconds);
  if (!answer.ok()) {
    view->server->trouble = answer.status().what();
    return;
  }
  view->server = server_moment(answer->body);
  if (view->server->known) return;
  view->server->trouble = answer->status == 200
                              ? "its /metrics has nothing of vLLM, llama-server or SGLang"
                              : "GET /metrics says " + std::to_string(answer->status) +
                                    (answer->status == 501 ? ": start llama-server with --metrics" : "");
}

}  // namespace eaglet::monitor
