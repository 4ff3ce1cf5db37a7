#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "monitor/view.h"

namespace eaglet::monitor {

/// What the run was asked to do and what it does, from the command line, the configuration it wrote, and what
/// its log echoes. Keys are canonical: max_seq_len, ttt_steps, train_batches, ...
class RunConfig {
 public:
  explicit RunConfig(const RunSeries& series);

  std::optional<double> number(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  /// Where the value came from: "train_config.json", "log", "command line", "Trackio".
  std::string source(const std::string& key) const;
  bool empty() const { return values_.empty(); }

  struct Difference {
    std::string key, asked, effective, source;
  };
  /// Flags of the command line that the run does not follow.
  const std::vector<Difference>& differences() const { return differences_; }

 private:
  void set(const std::string& key, const std::string& value, const std::string& source);
  void read_json(const Json& json, const std::string& source);
  void read_log(const LogFacts& log);
  void read_processes(const RunSeries& series);
  void read_command(const std::string& command);
  struct Value {
    std::string text, source;
  };
  std::map<std::string, Value> values_;
  std::vector<Difference> differences_;
};

/// "--max-seq-len 8192 --lr=1e-4" as pairs, names with underscores.
std::vector<std::pair<std::string, std::string>> command_flags(const std::string& command);

}  // namespace eaglet::monitor
