#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "client/http_pool.h"

namespace eaglet {

/// What a server is decides which routes give token ids.
enum class ServerKind {
  kOpenAi,  // plain chat completions: no token ids
  kVllm,    // return_token_ids
  kLlama,   // llama-server: /apply-template, /tokenize, /completion with return_tokens
  kSglang   // /tokenize, /generate
};
std::string server_kind_name(ServerKind kind);
/// "openai", "vllm", "llama", "sglang"; kUsage. "auto" is not a kind.
Result<ServerKind> server_kind_from_name(const std::string& name);

struct ServerFacts {
  std::string url = {};  // "http://host:8000": without a path at the end
  ServerKind kind = ServerKind::kOpenAi;
  std::string model = {};        // as requests must name it
  std::int64_t max_context = 0;  // in tokens; 0: not told
};

struct ProbeOptions {
  std::string model = {};          // wanted; empty: the only one it serves
  std::string kind = "auto";       // or a kind's name
  double wait_ready_seconds = 30;  // how long to wait for a server that is not up yet
  double step_seconds = 2;         // between two looks
};

/// Where a server's address stops: "http://host:8000/v1/" -> "http://host:8000". kUsage for no http(s)
/// address.
Result<std::string> server_address(const std::string& url);

/// How far a server got, lowest rung first. What failed is told together with the rung.
enum class ReadyRung { kAddress, kConnection, kHealth, kModels, kModel, kReady };
std::string rung_name(ReadyRung rung);

/// One look at a server.
struct Readiness {
  ReadyRung reached = ReadyRung::kAddress;  // the last rung that held
  std::string problem;                      // why the next one does not
  bool final = false;                       // waiting will not help
  ServerFacts facts;
};
Readiness look_at_server(HttpPool& pool, const std::string& url, const ProbeOptions& options);

/// Waits until the server is ready. kUnavailable names the rung that does not hold; kConfig (it serves
/// another model), kPermission (the key), kInterrupted.
Result<ServerFacts> probe_server(HttpPool& pool, const std::string& url, const ProbeOptions& options,
                                 Progress& progress);

/// "health 200, 12 running, 40 waiting": from /health and /metrics, for a run that stalls.
std::string health_text(const HttpReply& health, const HttpReply& metrics);

/// The message of an error reply in any of the servers' shapes, short; its own code in `code` (0: none).
std::string error_message(const std::string& body, int* code);

}  // namespace eaglet
