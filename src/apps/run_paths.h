#pragma once

#include <string>

namespace eaglet::apps {

/// The places in a run directory (docs/run-directory.md).
struct RunPaths {
  explicit RunPaths(std::string run_directory) : root(std::move(run_directory)) {}
  std::string root;
  std::string recipe() const { return root + "/recipe.toml"; }
  std::string prompts() const { return root + "/prompts.jsonl"; }
  std::string conversations() const { return root + "/conversations.jsonl"; }
  std::string states() const { return root + "/states"; }
  std::string draft() const { return root + "/draft"; }
  std::string exported() const { return root + "/export"; }
  std::string stages() const { return root + "/stages"; }
  std::string stage_record(const std::string& stage) const { return stages() + "/" + stage + ".json"; }
  std::string report_json() const { return root + "/report.json"; }
  std::string report_html() const { return root + "/report.html"; }
};

}  // namespace eaglet::apps
