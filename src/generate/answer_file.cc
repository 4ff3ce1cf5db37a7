#include "generate/answer_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "formats/row_source.h"

namespace eaglet {
namespace {

Result<int> lock_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status("open the answers", path, errno);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return Status(StatusCode::kBusy, "another eaglet is writing answers into this file", path,
                "wait for it, or give another --output");
}

/// Refuses to mix answers of two targets or two ways of sampling in one file. How the weights were held
/// ("weights_as") is for the record only: it follows the free memory, and stands for the same numbers.
Status check_settings(const std::string& path, const Json& settings, bool has_answers) {
  const std::string beside = side_file(path, "settings.json");
  if (has_answers && path_exists(beside)) {
    EAGLET_ASSIGN_OR_RETURN(Json before, read_json_file(beside));
    if (before.contains("weights_as") && !before.contains("engine"))
      before["engine"] = "llama";  // there was no other when it was begun
    for (const auto& [key, value] : settings.items())
      if (key != "weights_as" && key != "record" && (!before.contains(key) || before[key] != value))
        return Status(StatusCode::kConfig,
                      "the answers in this file were made with other settings: " + key + " was " +
                          (before.contains(key) ? before[key].dump() : "not given") + ", is " + value.dump(),
                      path, "give the same settings to go on, or another --output to start anew");
    return Status();
  }
  return write_json_file(beside, settings);
}

}  // namespace

std::string side_file(const std::string& path, const std::string& ending) {
  std::filesystem::path beside(path);
  return beside.replace_extension(ending).string();
}

AnswerFile::AnswerFile(AnswerFile&& other) noexcept
    : lock_fd_(std::exchange(other.lock_fd_, -1)),
      lines_(std::move(other.lines_)),
      path_(std::move(other.path_)),
      finished_(std::move(other.finished_)),
      parts_(std::move(other.parts_)),
      totals_(other.totals_) {}

AnswerFile::~AnswerFile() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

Result<AnswerFile> AnswerFile::open(const std::string& path, const Json& settings) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (!parent.empty()) EAGLET_RETURN_IF_ERROR(make_directories(parent));
  EAGLET_ASSIGN_OR_RETURN(const int lock_fd, lock_file(path));
  auto lines = LineAppender::open(path);
  if (!lines.ok()) {
    ::close(lock_fd);
    return lines.status();
  }
  AnswerFile file(lock_fd, std::move(*lines), path);
  EAGLET_RETURN_IF_ERROR(file.read_finished(path));
  EAGLET_RETURN_IF_ERROR(check_settings(path, settings, file.totals_.answers > 0));
  return file;
}

Status AnswerFile::read_finished(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> rows, RowSource::open(path));
  RowText row;
  for (;;) {
    EAGLET_ASSIGN_OR_RETURN(const bool there, rows->next(&row));
    if (!there) return Status();
    if (row.blank()) continue;
    const Result<Conversation> answer = parse_conversation(row.text);
    if (!answer.ok())
      return Status(
          StatusCode::kDataLoss,
          "line " + std::to_string(row.number) + " is not an answer of ours: " + answer.status().what(), path,
          "remove that line, or give another --output");
    count(*answer);
  }
}

Status AnswerFile::check_same(const Prompt& prompt) const {
  const std::string before = prompt_hash(prompt.id);
  if (before.empty() || before == prompt.hash()) return Status();
  return Status(StatusCode::kConfig,
                "the prompt " + prompt.id + " is not the one that was answered under this id", path_,
                "give the prompts another id, or another --output to start anew");
}

std::string part_id(const std::string& id, std::size_t part, std::size_t parts) {
  return parts == 1 ? id : id + "#" + std::to_string(part) + "/" + std::to_string(parts);
}

std::pair<std::string, std::size_t> whole_id(const std::string& row_id) {
  const std::size_t hash = row_id.rfind('#'), slash = row_id.rfind('/');
  if (hash == std::string::npos || slash == std::string::npos || slash < hash + 2) return {row_id, 1};
  const auto number = [&](std::size_t from, std::size_t to) -> std::size_t {
    std::size_t value = 0;
    for (std::size_t i = from; i < to; ++i) {
      if (row_id[i] < '0' || row_id[i] > '9' || value > 100000) return 0;
      value = value * 10 + static_cast<std::size_t>(row_id[i] - '0');
    }
    return value;
  };
  const std::size_t part = number(hash + 1, slash), parts = number(slash + 1, row_id.size());
  if (part == 0 || parts < 2 || part > parts) return {row_id, 1};
  return {row_id.substr(0, hash), parts};
}

std::string AnswerFile::prompt_hash(const std::string& id) const {
  const auto found = finished_.find(id);
  return found == finished_.end() ? std::string() : found->second;
}

void AnswerFile::count(const Conversation& answer) {
  const auto [id, parts] = whole_id(answer.id);
  if (parts > 1) {
    std::set<std::string>& here = parts_[id];
    here.insert(answer.id);
    if (here.size() == parts) {
      parts_.erase(id);
      finished_[id] = answer.prompt_hash;
    }
  } else {
    finished_[id] = answer.prompt_hash;
  }
  const std::int64_t prompt = answer.prompt_tokens();
  ++totals_.answers;
  totals_.prompt_tokens += prompt;
  totals_.response_tokens += static_cast<std::int64_t>(answer.input_ids.size()) - prompt;
  (answer.finish_reason == "stop" ? totals_.stopped : totals_.cut_by_length) += 1;
  if (answer.text.empty()) ++totals_.empty;
}

Status AnswerFile::append(const std::vector<Conversation>& rows) {
  std::string lines;
  std::vector<const Conversation*> added;
  for (const Conversation& row : rows) {
    const auto before = parts_.find(whole_id(row.id).first);
    if (before != parts_.end() && before->second.contains(row.id)) continue;  // a kill left it here
    lines += (lines.empty() ? "" : "\n") + conversation_line(row);
    added.push_back(&row);
  }
  if (added.empty()) return Status();
  EAGLET_RETURN_IF_ERROR(lines_.append(lines));
  for (const Conversation* row : added) count(*row);
  return Status();
}

}  // namespace eaglet
