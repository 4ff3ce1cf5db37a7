#include "apps/pager.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "apps/terminal.h"

extern char** environ;

namespace eaglet::apps {
namespace {

std::string pager_command() {
  for (const char* name : {"EAGLET_PAGER", "PAGER"})
    if (const char* value = std::getenv(name)) return std::string(value) == "cat" ? std::string() : value;
  return "less";
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
  const char* arguments[] = {"sh", "-c", command.c_str(), nullptr};
  pid_t pid = -1;
  const int failed =
      ::posix_spawn(&pid, "/bin/sh", &actions, nullptr, const_cast<char* const*>(arguments), environ);
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
  const bool fits = std::count(text.begin(), text.end(), '\n') < terminal_rows(STDOUT_FILENO);
  int input = -1;
  const pid_t pid = command.empty() || fits ? -1 : start_pager(command, &input);
  if (pid < 0) return write_whole(STDOUT_FILENO, text);
  write_whole(input, text);  // a pager that was left early ends the pipe, which is no failure
  ::close(input);
  if (was_missing(pid)) write_whole(STDOUT_FILENO, text);
}

}  // namespace eaglet::apps
