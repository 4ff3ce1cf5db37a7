#include "extract/states_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "formats/layer_ids.h"

namespace eaglet {
namespace {

Status check_server_settings(const StatesServerOptions& o) {
  const auto usage = [](const char* what, const char* todo) {
    return Status(StatusCode::kUsage, what, "eaglet extract --server", todo);
  };
  if (o.states_dir.empty())
    return usage("--states-dir is missing", "the server's shared_storage_path, as it is seen from here");
  if (o.concurrency < 1 || o.concurrency > 1024)
    return usage("--concurrency is not in 1..1024", "so many files lie in the folder at most");
  if (o.tries < 1) return usage("--tries is below 1", "give how often a request may be sent");
  if (!(o.timeout_seconds > 0)) return usage("--timeout is not above 0", "give seconds");
  return {};
}

}  // namespace

std::string connector_flags(const std::vector<std::int32_t>& places) {
  return fmt::format(
      "--no-enable-prefix-caching --speculative_config '{{\"method\": \"extract_hidden_states\", "
      "\"num_speculative_tokens\": 1, \"draft_model_config\": {{\"hf_config\": "
      "{{\"eagle_aux_hidden_state_layer_ids\": [{}]}}}}}}' --kv_transfer_config '{{\"kv_connector\": "
      "\"ExampleHiddenStatesConnector\", \"kv_role\": \"kv_producer\", \"kv_connector_extra_config\": "
      "{{\"shared_storage_path\": \"DIR\"}}}}'",
      fmt::join(places, ", "));
}

Result<SlotChoice> slots_of_server(const ExtractOptions& options, const TargetFacts& facts) {
  TakeInOptions take;
  take.states_path = options.server.states_dir;
  take.captured_layer_ids = options.server.captured_layer_ids;
  take.target_layer_ids = options.target_layer_ids;
  take.layer_convention = options.server.layer_convention;
  if (take.captured_layer_ids.empty() && !take.target_layer_ids.empty()) {
    EAGLET_ASSIGN_OR_RETURN(const LayerConvention convention,
                            layer_convention_from_name(take.layer_convention));
    EAGLET_ASSIGN_OR_RETURN(take.captured_layer_ids,
                            layer_places(take.target_layer_ids, convention, facts.num_layers));
    take.target_layer_ids = take.captured_layer_ids;
    take.layer_convention = "input";
    take.captured_layer_ids.push_back(static_cast<std::int32_t>(facts.num_layers));
    std::sort(take.captured_layer_ids.begin(), take.captured_layer_ids.end());
  }
  ForeignStates expected;
  expected.path = options.server.states_dir;
  constexpr std::size_t kUsualSlots = 4;
  expected.slots.resize(take.captured_layer_ids.empty() ? kUsualSlots : take.captured_layer_ids.size());
  return choose_slots(take, StatesLayout::kVllm, expected, facts);
}

Result<StatesServers> connect_states_servers(const ExtractOptions& options, Progress& progress) {
  const StatesServerOptions& o = options.server;
  EAGLET_RETURN_IF_ERROR(check_server_settings(o));
  StatesServers servers;
  HttpPoolOptions how;
  how.connections = static_cast<std::size_t>(o.concurrency);
  how.ca_file = o.ca_file;
  if (const char* key = std::getenv(o.api_key_env.c_str())) how.bearer = key;
  EAGLET_ASSIGN_OR_RETURN(servers.pool, HttpPool::create(how));
  const ProbeOptions probe = {.model = o.model, .kind = o.kind, .wait_ready_seconds = o.wait_ready_seconds};
  for (const std::string& url : options.servers) {
    EAGLET_ASSIGN_OR_RETURN(const ServerFacts facts, probe_server(*servers.pool, url, probe, progress));
    if (facts.kind != ServerKind::kVllm)
      return Status(
          StatusCode::kConfig,
          fmt::format("only vLLM keeps hidden states; this server is {}", server_kind_name(facts.kind)),
          facts.url, "--server-kind vllm says that it is one behind a proxy");
    if (servers.dispatch.servers.empty()) servers.server = facts;
    if (facts.model != servers.server.model)
      return Status(StatusCode::kConfig,
                    fmt::format("the servers differ: {} serves {}, {} serves {}", servers.server.url,
                                servers.server.model, facts.url, facts.model),
                    "--server", "give servers of one model, or name it with --served-model");
    servers.dispatch.servers.push_back(facts.url);
  }
  servers.dispatch.concurrency = static_cast<std::size_t>(o.concurrency);
  servers.dispatch.timeout_seconds = o.timeout_seconds;
  servers.dispatch.retry.tries = static_cast<int>(o.tries);
  servers.dispatch.retry.first_wait_seconds = o.retry_wait_seconds;
  progress.note(fmt::format("{} vLLM server{} with the model {}; at most {} files of states at once in {}",
                            servers.dispatch.servers.size(), servers.dispatch.servers.size() == 1 ? "" : "s",
                            servers.server.model, o.concurrency, o.states_dir));
  return servers;
}

}  // namespace eaglet
