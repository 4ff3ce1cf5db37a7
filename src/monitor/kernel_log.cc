#include "monitor/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostLines = 64;

/// The whole number right behind `word`; -1 when there is none.
std::int64_t number_behind(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return -1;
  std::string_view rest = text.substr(at + word.size());
  std::size_t digits = 0;
  while (digits < rest.size() && digits < 18 && rest[digits] >= '0' && rest[digits] <= '9') ++digits;
  return whole_number(rest.substr(0, digits)).value_or(-1);
}

/// What stands between `open` and `close`, or nothing.
std::string between(std::string_view text, std::string_view open, std::string_view close) {
  const std::size_t from = text.find(open);
  if (from == std::string_view::npos) return {};
  const std::size_t to = text.find(close, from + open.size());
  return to == std::string_view::npos ? std::string()
                                      : std::string(text.substr(from + open.size(), to - from - open.size()));
}

}  // namespace

std::optional<KernelLine> parse_kernel_record(std::string_view record) {
  const std::size_t semicolon = record.find(';');
  if (semicolon == std::string_view::npos) return std::nullopt;
  const auto head = split(record.substr(0, semicolon), ',');
  const std::string_view text = record.substr(semicolon + 1, record.find('\n', semicolon) - semicolon - 1);
  KernelLine line;
  if (head.size() >= 3) line.since_boot_seconds = number(head[2]).value_or(kNotKnown) / 1e6;
  line.text = without_controls(std::string(text.substr(0, 300)));
  if (contains(text, "Killed process ")) {
    line.kind = KernelLine::Kind::kKilledForMemory;
    line.pid = number_behind(text, "Killed process ");
    line.name = between(text, "(", ")");
  } else if (contains(text, "NVRM: Xid (")) {
    line.kind = KernelLine::Kind::kXid;
    line.device = between(text, "Xid (", ")");
    line.code = number_behind(text, "): ");
    line.pid = number_behind(text, "pid=");
  } else if (contains(text, "blocked for more than ")) {
    line.kind = KernelLine::Kind::kHungTask;
    const std::string task = between(text, "task ", " blocked");
    const std::size_t colon = task.rfind(':');
    if (colon == std::string::npos) return std::nullopt;
    line.name = task.substr(0, colon);
    line.pid = whole_number(task.substr(colon + 1)).value_or(-1);
  } else {
    return std::nullopt;
  }
  const bool whole = line.kind == KernelLine::Kind::kXid ? line.code >= 0 : line.pid >= 0;
  return whole ? std::optional<KernelLine>(line) : std::nullopt;
}

bool is_fatal_xid(std::int64_t xid) {
  constexpr std::int64_t kFatal[] = {48, 63, 64, 74, 79, 94, 95, 119, 120};
  return std::find(std::begin(kFatal), std::end(kFatal), xid) != std::end(kFatal);
}

KernelLog::KernelLog(const std::string& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}

KernelLog::~KernelLog() {
  if (fd_ >= 0) ::close(fd_);
}

void KernelLog::poll(double since_boot_seconds, std::vector<KernelLine>* lines) {
  char bytes[8192];
  for (int reads = 0; fd_ >= 0 && reads < 100000; ++reads) {
    const ssize_t got = ::read(fd_, bytes, sizeof bytes);
    if (got < 0 && errno == EPIPE)
      continue;  // overwritten before we came: the next read goes on after the gap
    if (got < 0 && errno == EPERM) {
      ::close(fd_);
      fd_ = -1;
    }
    if (got <= 0) break;
    half_.append(bytes, static_cast<std::size_t>(got));
    std::size_t from = 0;
    for (std::size_t end; (end = half_.find('\n', from)) != std::string::npos; from = end + 1) {
      auto line = parse_kernel_record(std::string_view(half_).substr(from, end - from));
      if (line && !(line->since_boot_seconds < since_boot_seconds)) lines->push_back(std::move(*line));
    }
    half_.erase(0, from);
    if (half_.size() > sizeof bytes) half_.clear();
  }
  if (lines->size() > kMostLines)
    lines->erase(lines->begin(), lines->end() - static_cast<std::ptrdiff_t>(kMostLines));
}

}  // namespace eaglet::monitor
