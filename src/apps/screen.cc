#include "apps/screen.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "apps/terminal.h"
#include "monitor/text_scan.h"

namespace eaglet::apps {
namespace {

constexpr const char *kEnter = "\033[?1049h\033[?25l\033[2J", *kLeave = "\033[?25h\033[?1049l";
termios g_before = {};
volatile sig_atomic_t g_active = 0, g_redraw = 0;

// Only calls that are safe in a signal handler.
void restore() {
  if (g_active == 0) return;
  g_active = 0;
  (void)!::write(STDOUT_FILENO, kLeave, std::char_traits<char>::length(kLeave));
  ::tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
}

void enter() {
  termios raw = g_before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  (void)!::write(STDOUT_FILENO, kEnter, std::char_traits<char>::length(kEnter));
  g_active = 1;
  g_redraw = 1;
}

void on_suspend(int signal) {
  restore();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_continue(int) {
  ::signal(SIGTSTP, on_suspend);
  enter();
}

void on_death(int signal) {
  restore();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

Screen::Screen() {
  ::tcgetattr(STDIN_FILENO, &g_before);
  std::atexit(restore);
  ::signal(SIGTSTP, on_suspend);
  ::signal(SIGCONT, on_continue);
  for (const int signal : {SIGHUP, SIGQUIT, SIGSEGV, SIGABRT, SIGBUS}) ::signal(signal, on_death);
  enter();
}

Screen::~Screen() {
  restore();
  for (const int signal : {SIGTSTP, SIGCONT, SIGHUP, SIGQUIT, SIGSEGV, SIGABRT, SIGBUS})
    ::signal(signal, SIG_DFL);
}

int Screen::columns() const {
  return terminal_columns(STDOUT_FILENO);
}

int Screen::rows() const {
  return terminal_rows(STDOUT_FILENO);
}

void Screen::draw(const std::vector<std::string>& lines) {
  const bool all = g_redraw != 0 || shown_columns_ != columns() || shown_.size() != lines.size();
  g_redraw = 0;
  shown_columns_ = columns();
  std::string out = all ? "\033[2J" : "";
  for (std::size_t row = 0; row < lines.size(); ++row)
    if (all || shown_[row] != lines[row]) out += fmt::format("\033[{};1H\033[2K{}", row + 1, lines[row]);
  shown_ = lines;
  if (!out.empty()) write_whole(STDOUT_FILENO, out);
}

int Screen::key(double seconds) {
  pollfd wait = {STDIN_FILENO, POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(1000 * seconds)) <= 0) return 0;
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) <= 0) return -1;  // the terminal went away
  if (key != '\033') return key;                      // what was typed ahead waits for the next call
  // What an arrow or function key sends: ESC [ 1 ; 5 A, up to the first letter or tilde behind the bracket.
  for (bool first = true; ::poll(&wait, 1, 0) > 0 && ::read(STDIN_FILENO, &key, 1) == 1; first = false)
    if (!(first && (key == '[' || key == 'O')) && key >= '@') break;
  return 0;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    const std::string text = monitor::lower(value);
    return monitor::contains(text, "utf-8") || monitor::contains(text, "utf8");
  }
  return false;
}

}  // namespace eaglet::apps
