#include "apps/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

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

void write_whole(int fd, const std::string& text) {
  const char* at = text.data();
  std::size_t left = text.size();
  while (left > 0) {
    const ssize_t written = ::write(fd, at, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // talk that nobody can read is not worth failing a run for
    at += written;
    left -= static_cast<std::size_t>(written);
  }
}

}  // namespace eaglet::apps
