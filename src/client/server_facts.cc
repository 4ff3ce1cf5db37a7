#include "client/server_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/interrupt.h"
#include "client/metrics_text.h"
#include "formats/json_field.h"

namespace eaglet {
namespace {

constexpr double kLookSeconds = 10;

HttpReply get(HttpPool& pool, const std::string& url) {
  return pool.fetch({.url = url, .timeout_seconds = kLookSeconds, .connect_seconds = 5});
}

ServerKind kind_of_owner(const std::string& owner) {
  if (owner == "vllm") return ServerKind::kVllm;
  if (owner == "llamacpp") return ServerKind::kLlama;
  if (owner == "sglang") return ServerKind::kSglang;
  return ServerKind::kOpenAi;
}

/// The connection's part of the ladder; false when it stops here.
bool connected(const HttpReply& reply, Readiness* look) {
  switch (reply.failure) {
    case HttpFailure::kNone:
      look->reached = ReadyRung::kConnection;
      return true;
    case HttpFailure::kNoHost:
    case HttpFailure::kTls:
      look->final = true;
      [[fallthrough]];
    default:
      look->problem = reply.error;
      return false;
  }
}

struct ServedModel {
  std::string id = {}, owner = {};
  std::int64_t max_context = 0;
};

Result<std::vector<ServedModel>> served_models(const std::string& body) {
  EAGLET_ASSIGN_OR_RETURN(const Json page, parse_json(body));
  const Json* data = json_field(page, "data");
  if (data == nullptr || !data->is_array()) return bad_row("the list of models has no 'data'");
  std::vector<ServedModel> models;
  for (const Json& entry : *data) {
    const Json* id = json_field(entry, "id");
    if (id == nullptr || !id->is_string()) continue;
    ServedModel model{.id = id->get<std::string>()};
    if (const Json* owner = json_field(entry, "owned_by"); owner != nullptr && owner->is_string())
      model.owner = owner->get<std::string>();
    if (const Json* length = json_field(entry, "max_model_len");
        length != nullptr && length->is_number_unsigned())
      model.max_context = length->get<std::int64_t>();
    models.push_back(std::move(model));
  }
  return models;
}

void choose_model(const std::vector<ServedModel>& models, const ProbeOptions& options, Readiness* look) {
  const auto wanted = std::find_if(models.begin(), models.end(), [&](const ServedModel& m) {
    return m.id == options.model || options.model.empty();
  });
  std::vector<std::string> names;
  for (const ServedModel& model : models) names.push_back(model.id);
  if (wanted == models.end()) {
    look->problem = models.empty()
                        ? "it lists no model"
                        : fmt::format("it does not serve {}, but {}", options.model, fmt::join(names, ", "));
    look->final = !models.empty();
    return;
  }
  look->facts.model = wanted->id;
  look->facts.max_context = wanted->max_context;
  look->facts.kind = kind_of_owner(wanted->owner);
  if (options.kind != "auto")
    if (const auto kind = server_kind_from_name(options.kind); kind.ok()) look->facts.kind = *kind;
  look->reached = ReadyRung::kReady;
}

}  // namespace

std::string server_kind_name(ServerKind kind) {
  switch (kind) {
    case ServerKind::kOpenAi:
      return "openai";
    case ServerKind::kVllm:
      return "vllm";
    case ServerKind::kLlama:
      return "llama";
    case ServerKind::kSglang:
      return "sglang";
  }
  return "openai";
}

Result<ServerKind> server_kind_from_name(const std::string& name) {
  for (const ServerKind kind :
       {ServerKind::kOpenAi, ServerKind::kVllm, ServerKind::kLlama, ServerKind::kSglang})
    if (server_kind_name(kind) == name) return kind;
  return Status(StatusCode::kUsage, "--server-kind \"" + name + "\" is not known", "",
                "give auto, vllm, sglang, llama or openai");
}

Result<std::string> server_address(const std::string& url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string::npos ||
      (url.compare(0, scheme, "http") != 0 && url.compare(0, scheme, "https") != 0) ||
      url.size() <= scheme + 3)
    return Status(StatusCode::kUsage, "\"" + url + "\" is not the address of a server", "--server",
                  "give for example http://localhost:8000");
  std::string address = url;
  const auto drop = [&](const std::string& end) {
    if (address.ends_with(end)) address.resize(address.size() - end.size());
  };
  while (address.ends_with("/")) address.pop_back();
  drop("/chat/completions");
  drop("/v1");
  while (address.ends_with("/")) address.pop_back();
  return address;
}

std::string rung_name(ReadyRung rung) {
  switch (rung) {
    case ReadyRung::kAddress:
      return "address";
    case ReadyRung::kConnection:
      return "connection";
    case ReadyRung::kHealth:
      return "health";
    case ReadyRung::kModels:
      return "list of models";
    case ReadyRung::kModel:
      return "the model wanted";
    case ReadyRung::kReady:
      return "ready";
  }
  return "ready";
}

std::string error_message(const std::string& body, int* code) {
  *code = 0;
  const auto parsed = parse_json(body);
  if (!parsed.ok()) return body.substr(0, 200);
  const Json* inner = json_field(*parsed, "error");
  const Json& error = inner != nullptr && inner->is_object() ? *inner : *parsed;
  if (const Json* number = json_field(error, "code"); number != nullptr && number->is_number_integer())
    *code = static_cast<int>(std::clamp<std::int64_t>(number->get<std::int64_t>(), 0, 999));
  if (inner != nullptr && inner->is_string()) return inner->get<std::string>().substr(0, 400);
  for (const char* name : {"message", "detail", "error"}) {
    const Json* text = json_field(error, name);
    if (text == nullptr) continue;
    return (text->is_string() ? text->get<std::string>() : json_line(*text)).substr(0, 400);
  }
  return json_line(*parsed).substr(0, 200);
}

Readiness look_at_server(HttpPool& pool, const std::string& url, const ProbeOptions& options) {
  Readiness look;
  look.facts.url = url;
  int code = 0;
  const HttpReply health = get(pool, url + "/health");
  if (!connected(health, &look)) return look;
  // A server without this route answers 404 (or 405): the list of models decides.
  if (!health.ok() && (health.status >= 500 || health.status == 429)) {
    look.problem = fmt::format("/health says {}: {}", health.status, error_message(health.body, &code));
    return look;
  }
  look.reached = ReadyRung::kHealth;
  const HttpReply page = get(pool, url + "/v1/models");
  if (page.status == 401 || page.status == 403) {
    look.problem = fmt::format("it refuses the key ({})", page.status);
    look.final = true;
    return look;
  }
  if (!page.ok()) {
    look.problem = page.status == 0
                       ? page.error
                       : fmt::format("/v1/models says {}: {}", page.status, error_message(page.body, &code));
    look.final = page.status >= 400 && page.status < 500 && page.status != 429;
    return look;
  }
  const auto models = served_models(page.body);
  if (!models.ok()) {
    look.problem = "/v1/models gives no list: " + models.status().what();
    look.final = true;
    return look;
  }
  look.reached = ReadyRung::kModels;
  choose_model(*models, options, &look);
  return look;
}

Result<ServerFacts> probe_server(HttpPool& pool, const std::string& url, const ProbeOptions& options,
                                 Progress& progress) {
  EAGLET_ASSIGN_OR_RETURN(const std::string address, server_address(url));
  if (options.kind != "auto") EAGLET_RETURN_IF_ERROR(server_kind_from_name(options.kind).status());
  const double start = monotonic_seconds();
  std::string told;
  for (;;) {
    const Readiness look = look_at_server(pool, address, options);
    if (look.reached == ReadyRung::kReady) return look.facts;
    const std::string next = rung_name(static_cast<ReadyRung>(static_cast<int>(look.reached) + 1));
    const std::string text = fmt::format("not ready at \"{}\": {}", next, look.problem);
    const bool key = look.problem.find("refuses the key") != std::string::npos;
    if (key)
      return Status(StatusCode::kPermission, "the server refuses the API key", address,
                    "set the variable that --api-key-env names (EAGLET_API_KEY) to a valid key");
    if (look.final && look.reached == ReadyRung::kModels)
      return Status(StatusCode::kConfig, text, address, "name one of them with --served-model");
    if (look.final || monotonic_seconds() - start >= options.wait_ready_seconds)
      return Status(StatusCode::kUnavailable, "the server is " + text, address,
                    "check the address and the server's own log; --wait-ready SECONDS waits longer for one "
                    "that is still loading");
    if (text != told) progress.note(fmt::format("waiting for {}: {}", address, text));
    told = text;
    for (double until = monotonic_seconds() + options.step_seconds; monotonic_seconds() < until;) {
      if (interrupted())
        return Status(StatusCode::kInterrupted, "stopped by a signal while waiting for the server", address);
      EAGLET_RETURN_IF_ERROR(pool.poll(0.1));
    }
  }
}

std::string health_text(const HttpReply& health, const HttpReply& metrics) {
  std::string text = health.status != 0 ? fmt::format("health {}", health.status) : "health: " + health.error;
  if (!metrics.ok()) return text;
  const auto samples = parse_metrics(metrics.body);
  const std::pair<const char*, const char*> pairs[] = {
      {"vllm:num_requests_running", "vllm:num_requests_waiting"},
      {"sglang:num_running_reqs", "sglang:num_queue_reqs"},
      {"llamacpp:requests_processing", "llamacpp:requests_deferred"}};
  for (const auto& [running, waiting] : pairs) {
    const double now = metric_sum(samples, running, -1);
    if (now < 0) continue;
    text += fmt::format(", {:.0f} running, {:.0f} waiting", now, metric_sum(samples, waiting, 0));
    break;
  }
  return text;
}

}  // namespace eaglet
