#include "apps/pager.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "apps/terminal.h"
#include "base/start_program.h"

namespace eaglet::apps {
namespace {

std::string pager_command() {
  for (const char* name : {"EAGLET_PAGER", "PAGER"})
    if (const char* value = std::getenv(name)) return std::string(value) == "cat" ? std::string() : value;
  return "less";
}

/// Rows that the text fills, long lines folded. Colour codes count as if they were seen: `less -F` shows at
/// once what fits after all.
std::size_t rows_of(const std::string& text, std::size_t columns) {
  std::size_t rows = 0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    rows += 1 + (end - from) / columns;
    from = end + 1;
  }
  return rows;
}

/// Starts the pager with a pipe as its input; -1 when that is not possible.
pid_t start_pager(const std::string& command, int* input) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
  // As git has it: quit if it fits, colours as they are, the screen left alone.
  ::setenv("LESS", "FRX", 0);
  const char* arguments[] = {"/bin/sh", "-c", command.c_str(), nullptr};
  pid_t pid = -1;
  const int failed = start_program(&pid, actions, arguments);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[0]);
  if (failed != 0) {
    ::close(ends[1]);
    return -1;
  }
  *input = ends[1];
  return pid;
}

/// Whether a shell found no such program.
bool was_missing(pid_t pid) {
  constexpr int kNotFound = 127;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == kNotFound;
}

}  // namespace

void show_text(const std::string& text) {
  const bool person = is_live_terminal(STDOUT_FILENO) && ::isatty(STDIN_FILENO) == 1;
  const std::string command = person ? pager_command() : std::string();
  const auto columns = static_cast<std::size_t>(terminal_columns(STDOUT_FILENO));
  const bool fits = rows_of(text, columns) < static_cast<std::size_t>(terminal_rows(STDOUT_FILENO));
  int input = -1;
  const pid_t pid = command.empty() || fits ? -1 : start_pager(command, &input);
  if (pid < 0) return write_whole(STDOUT_FILENO, text);
  write_whole(input, text);  // a pager that was left early ends the pipe, which is no failure
  ::close(input);
  if (was_missing(pid)) write_whole(STDOUT_FILENO, text);
}

}  // namespace eaglet::apps
