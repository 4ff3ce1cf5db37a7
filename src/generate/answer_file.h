#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
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

  /// Is the answer to this prompt here, with all its rows?
  bool has(const std::string& id) const { return finished_.contains(id); }
  /// The hash of what was asked under this id; empty when it is not here or does not say.
  std::string prompt_hash(const std::string& id) const;
  /// kConfig when another prompt was answered under this one's id.
  Status check_same(const Prompt& prompt) const;
  const AnswerTotals& totals() const { return totals_; }
  std::uint64_t cut_bytes() const { return lines_.cut_bytes(); }
  Status append(const Conversation& answer) { return append(std::vector<Conversation>{answer}); }
  /// All rows of one prompt in one write; those that are here already are left out.
  Status append(const std::vector<Conversation>& rows);
  Status sync() { return lines_.sync(); }

 private:
  AnswerFile(int lock_fd, LineAppender lines, std::string path)
      : lock_fd_(lock_fd), lines_(std::move(lines)), path_(std::move(path)) {}
  Status read_finished(const std::string& path);
  void count(const Conversation& answer);
  int lock_fd_ = -1;
  LineAppender lines_;
  std::string path_;
  std::unordered_map<std::string, std::string> finished_;         // prompt id -> hash
  std::unordered_map<std::string, std::set<std::string>> parts_;  // prompt id -> row ids, until all are here
  AnswerTotals totals_;
};

/// A prompt whose answers need several rows (a template that rewrites history) has them as "id#1/3" ...
/// "id#3/3".
std::string part_id(const std::string& id, std::size_t part, std::size_t parts);
/// Of "id#2/3": "id", 3. Of any other id: itself, 1.
std::pair<std::string, std::size_t> whole_id(const std::string& row_id);

/// "runs/a/conversations.jsonl", "settings.json" -> "runs/a/conversations.settings.json".
std::string side_file(const std::string& path, const std::string& ending);

}  // namespace eaglet
