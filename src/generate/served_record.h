#pragma once

#include <optional>
#include <string>

#include "base/files.h"
#include "base/status.h"
#include "client/server_facts.h"
#include "formats/json.h"
#include "generate/generate.h"

namespace eaglet {

/// Prompts without an answer, "<name>.failed.jsonl": one line each, written as they fail. A new run begins
/// anew, for it asks for them again.
class FailureLines {
 public:
  explicit FailureLines(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  Status begin() { return remove_all(path_); }
  Status add(const std::string& id, const std::string& kind, const std::string& message);

 private:
  std::string path_;
  std::optional<LineAppender> lines_;
};

/// What the answers depend on, and under "record" what they do not (addresses, speed).
Json served_settings(const GenerateOptions& options, const ServerFacts& server, const Json& request);

/// Prompts of this run that ended without an answer.
std::int64_t failed_prompts(const ServedCounts& counts);

/// "<name>.manifest.json": settings and counts of this run, for whoever finds the answers later.
Status write_served_manifest(const GenerateOptions& options, const Json& settings,
                             const GenerateReport& report, const Status& ended);

}  // namespace eaglet
