#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "client/http_pool.h"
#include "client/server_facts.h"
#include "generate/generate.h"
#include "verifier/talk_renderer.h"
#include "verifier/target_tokens.h"

namespace eaglet {

/// What has to stand before the first request.

/// The tokenizer and template that are used where a server gives no ids; empty without a model, or when it
/// carries no template.
struct LocalRenderer {
  std::unique_ptr<TargetTokens> target;
  std::unique_ptr<TalkRenderer> renderer;
};
Result<LocalRenderer> open_local_renderer(const GenerateOptions& options);

/// The servers, all ready and of one kind and model.
struct ServedConnection {
  std::unique_ptr<HttpPool> pool;
  std::vector<std::string> urls;
  ServerFacts server;  // the first one's
};
/// The errors of probe_server; kConfig when the servers differ, or give no ids and there is no renderer.
Result<ServedConnection> connect_servers(const GenerateOptions& options, bool has_renderer,
                                         Progress& progress);

/// The JSON object of a flag; null when it is empty. kUsage.
Result<Json> object_of_flag(const std::string& flag, const std::string& text);

/// kUsage for settings of [served] that cannot be.
Status check_served_options(const ServedOptions& options);

}  // namespace eaglet
