#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/status.h"

namespace eaglet {

/// The files that servers named in this and earlier runs, `<store>/server_files.jsonl`: what was asked for is
/// asked for once, and no file stays behind after a kill.
class StatesJournal {
 public:
  /// `writer`: "2/4", each of several processes has a journal of its own; empty: the only one.
  static Result<StatesJournal> open(const std::string& store_path, const std::string& writer);
  /// Document ids and names of earlier runs.
  const std::vector<std::pair<std::string, std::string>>& left() const { return left_; }
  /// In the kernel when this returns.
  Status add(const std::string& id, const std::string& name);
  /// What is named there.
  const std::string& path() const { return path_; }
  /// Everything but `left` was taken: the journal shrinks to these lines, or goes.
  Status end(const std::vector<std::pair<std::string, std::string>>& left);

 private:
  explicit StatesJournal(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::optional<LineAppender> lines_;
  std::vector<std::pair<std::string, std::string>> left_;
};

}  // namespace eaglet
