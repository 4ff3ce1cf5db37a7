#include "generate/served_setup.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/files.h"

namespace eaglet {
namespace {

Status usage(const std::string& what, const std::string& todo) {
  return Status(StatusCode::kUsage, what, "eaglet generate", todo);
}

}  // namespace

Status check_served_options(const ServedOptions& options) {
  if (options.concurrency < 1 || options.concurrency > 4096)
    return usage("--concurrency is not in 1..4096", "64 is the default");
  if (options.tries < 1) return usage("--tries is below 1", "give how often a request may be sent");
  if (!(options.timeout_seconds > 0)) return usage("--timeout is not above 0", "give seconds");
  if (options.cut != "keep" && options.cut != "leave-out")
    return usage("--cut \"" + options.cut + "\" is not known", "give keep or leave-out");
  return {};
}

Result<Json> object_of_flag(const std::string& flag, const std::string& text) {
  if (text.empty()) return Json();
  auto parsed = parse_json(text);
  if (parsed.ok() && parsed->is_object()) return std::move(*parsed);
  return usage(flag + " is not a JSON object", "give for example '{\"top_k\": 20}'");
}

Result<LocalRenderer> open_local_renderer(const GenerateOptions& options) {
  LocalRenderer local;
  if (options.model_path.empty()) return local;
  EAGLET_ASSIGN_OR_RETURN(local.target, TargetTokens::open(options.model_path));
  RenderOptions how;
  EAGLET_ASSIGN_OR_RETURN(how.template_arguments,
                          object_of_flag("--template-arguments", options.served.template_arguments));
  if (!options.served.template_path.empty()) {
    EAGLET_ASSIGN_OR_RETURN(how.template_text, read_file(options.served.template_path));
  } else if (!has_chat_template(*local.target)) {
    return local;  // a server that gives ids needs none
  }
  EAGLET_ASSIGN_OR_RETURN(local.renderer, TalkRenderer::open(*local.target, how));
  return local;
}

Result<ServedConnection> connect_servers(const GenerateOptions& options, bool has_renderer,
                                         Progress& progress) {
  ServedConnection connection;
  HttpPoolOptions how;
  how.connections = static_cast<std::size_t>(options.served.concurrency);
  how.ca_file = options.served.ca_file;
  if (const char* key = std::getenv(options.served.api_key_env.c_str())) how.bearer = key;
  EAGLET_ASSIGN_OR_RETURN(connection.pool, HttpPool::create(how));
  const ProbeOptions probe = {.model = options.served.model,
                              .kind = options.served.kind,
                              .wait_ready_seconds = options.served.wait_ready_seconds};
  for (const std::string& url : options.servers) {
    EAGLET_ASSIGN_OR_RETURN(const ServerFacts facts, probe_server(*connection.pool, url, probe, progress));
    const ServerFacts& first = connection.urls.empty() ? facts : connection.server;
    if (facts.kind != first.kind || facts.model != first.model)
      return Status(StatusCode::kConfig,
                    fmt::format("the servers differ: {} is {} with {}, {} is {} with {}", first.url,
                                server_kind_name(first.kind), first.model, facts.url,
                                server_kind_name(facts.kind), facts.model),
                    "--server", "give equal servers, or name the model with --served-model");
    if (connection.urls.empty()) connection.server = facts;
    connection.urls.push_back(facts.url);
  }
  if (connection.server.kind == ServerKind::kOpenAi && !has_renderer)
    return Status(
        StatusCode::kConfig,
        "this kind of server gives no token ids (it is none of vLLM, SGLang and llama-server)",
        connection.server.url,
        "give --model TARGET: the texts are then tokenised with its tokenizer and template; or name "
        "the kind with --server-kind when it is one of those behind a proxy");
  progress.note(fmt::format("{} server{} of kind {} with the model {}", connection.urls.size(),
                            connection.urls.size() == 1 ? "" : "s", server_kind_name(connection.server.kind),
                            connection.server.model));
  return connection;
}

}  // namespace eaglet
