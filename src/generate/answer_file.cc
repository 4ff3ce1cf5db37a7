#include "generate/answer_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

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
    EAGLET_ASSIGN_OR_RETURN(const Json before, read_json_file(beside));
    for (const auto& [key, value] : settings.items())
      if (key != "weights_as" && (!before.contains(key) || before[key] != value))
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
      finished_(std::move(other.finished_)),
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
  AnswerFile file(lock_fd, std::move(*lines));
  EAGLET_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes(path));
  if (bytes > 0) {
    EAGLET_ASSIGN_OR_RETURN(const ConversationFile before, read_conversations(path));
    if (!before.broken.empty())
      return Status(StatusCode::kDataLoss,
                    "line " + std::to_string(before.broken[0].line) +
                        " is not an answer of ours: " + before.broken[0].reason,
                    path, "remove that line, or give another --output");
    for (const Conversation& answer : before.conversations) file.count(answer);
  }
  EAGLET_RETURN_IF_ERROR(check_settings(path, settings, file.totals_.answers > 0));
  return file;
}

void AnswerFile::count(const Conversation& answer) {
  finished_.insert(answer.id);
  const std::int64_t prompt = answer.prompt_tokens();
  ++totals_.answers;
  totals_.prompt_tokens += prompt;
  totals_.response_tokens += static_cast<std::int64_t>(answer.input_ids.size()) - prompt;
  (answer.finish_reason == "stop" ? totals_.stopped : totals_.cut_by_length) += 1;
  if (answer.text.empty()) ++totals_.empty;
}

Status AnswerFile::append(const Conversation& answer) {
  EAGLET_RETURN_IF_ERROR(lines_.append(conversation_line(answer)));
  count(answer);
  return Status();
}

}  // namespace eaglet
