#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "formats/conversations.h"
#include "formats/json.h"

namespace eaglet {

/// Sums over every answer in the file.
struct AnswerTotals {
  std::int64_t answers = 0, empty = 0, stopped = 0, cut_by_length = 0;
  std::int64_t prompt_tokens = 0, response_tokens = 0;
};

/// conversations.jsonl while it is being written: one line an answer, each line one write, so a kill loses no
/// finished answer. Beside it, "<name>.settings.json" says which target and which sampling the answers are
/// of. One writer: the file itself is locked while the object lives.
class AnswerFile {
 public:
  /// Opens or makes the file, cuts a half last line, reads what is finished. kBusy (another process writes
  /// it), kConfig (answers of another target or sampling are in it), kDataLoss (a line in it is not an
  /// answer), kPermission.
  static Result<AnswerFile> open(const std::string& path, const Json& settings);
  AnswerFile(AnswerFile&&) noexcept;
  AnswerFile& operator=(AnswerFile&&) = delete;
  ~AnswerFile();

  bool has(const std::string& id) const { return finished_.contains(id); }
  const AnswerTotals& totals() const { return totals_; }
  std::uint64_t cut_bytes() const { return lines_.cut_bytes(); }
  Status append(const Conversation& answer);
  Status sync() { return lines_.sync(); }

 private:
  AnswerFile(int lock_fd, LineAppender lines) : lock_fd_(lock_fd), lines_(std::move(lines)) {}
  void count(const Conversation& answer);
  int lock_fd_ = -1;
  LineAppender lines_;
  std::unordered_set<std::string> finished_;
  AnswerTotals totals_;
};

/// "runs/a/conversations.jsonl", "settings.json" -> "runs/a/conversations.settings.json".
std::string side_file(const std::string& path, const std::string& ending);

}  // namespace eaglet
