#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "client/question.h"

namespace eaglet {

/// Answers of talks that are not through yet, one line each, so that a killed run does not ask (and pay) for
/// them again. Only talks of several questions need it. One writer, the one that holds the answers' lock.
class TurnJournal {
 public:
  /// kDataLoss (a line in it is not ours), kPermission.
  static Result<TurnJournal> open(const std::string& path);
  /// Answers of this talk, in order, when it is the same talk.
  const std::vector<ServedAnswer>& answers(const std::string& id, const std::string& hash) const;
  Status append(const std::string& id, const std::string& hash, const ServedAnswer& answer);
  /// The talk's rows are in the answers' file.
  void forget(const std::string& id) { talks_.erase(id); }
  /// Nothing is open any more: the file goes away.
  Status remove();

 private:
  explicit TurnJournal(std::string path) : path_(std::move(path)) {}
  struct OpenTalk {
    std::string hash;
    std::vector<ServedAnswer> answers;
  };
  std::string path_;
  std::vector<LineAppender> lines_;  // none until something is written
  std::unordered_map<std::string, OpenTalk> talks_;
};

}  // namespace eaglet
