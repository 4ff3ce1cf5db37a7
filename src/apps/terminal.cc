#include "apps/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/interrupt.h"

namespace eaglet::apps {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool says_yes(const std::string& value) {
  return !value.empty() && value != "0" && value != "false";
}

}  // namespace

bool is_live_terminal(int fd) {
  return ::isatty(fd) == 1 && environment("TERM") != "dumb" && !says_yes(environment("CI"));
}

int terminal_columns(int fd) {
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int columns = std::atoi(environment("COLUMNS").c_str());
  return columns > 0 ? columns : 80;
}

int terminal_rows(int fd) {
  winsize size = {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 ? size.ws_row : 24;
}

bool use_color(ColorMode mode, int fd) {
  if (mode != ColorMode::kAuto) return mode == ColorMode::kAlways;
  if (!environment("NO_COLOR").empty()) return false;
  if (says_yes(environment("CLICOLOR_FORCE")) || says_yes(environment("FORCE_COLOR"))) return true;
  return ::isatty(fd) == 1 && environment("TERM") != "dumb";
}

std::string toned(const std::string& text, Tone tone, bool color) {
  if (!color) return text;
  const char* codes[] = {"\033[32m", "\033[33m", "\033[31m", "\033[1m", "\033[2m"};
  return codes[static_cast<int>(tone)] + text + "\033[0m";
}

namespace {

// Waits until some bytes can be written. After a signal a reader gets a second more: one that has stopped
// reading (mpirun does when it is told to end) must not keep a run from saving.
bool wait_writable(int fd) {
  constexpr int kPatienceMs = 200, kTurnsAfterSignal = 5;
  for (int turns = 0; turns < kTurnsAfterSignal;) {
    pollfd place{fd, POLLOUT, 0};
    if (::poll(&place, 1, kPatienceMs) != 0 && errno != EINTR)
      return true;  // ready, or write() will say why not
    if (place.revents != 0) return true;
    if (interrupted()) ++turns;
  }
  return false;
}

}  // namespace

void write_whole(int fd, const std::string& text) {
  constexpr std::size_t kPiece = 4096;  // PIPE_BUF: what poll() promises a pipe takes without waiting
  const char* at = text.data();
  std::size_t left = text.size();
  while (left > 0) {
    errno = 0;
    if (!wait_writable(fd)) return;
    const ssize_t written = ::write(fd, at, std::min(left, kPiece));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written <= 0) return;  // talk that nobody can read is not worth failing a run for
    at += written;
    left -= static_cast<std::size_t>(written);
  }
}

}  // namespace eaglet::apps
