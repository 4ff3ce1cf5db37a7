#include "monitor/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/clock.h"
#include "base/start_program.h"

namespace eaglet::monitor {

ChildOutput::~ChildOutput() {
  std::string dropped;
  if (running()) finish(0, &dropped);
}

bool ChildOutput::start(const std::vector<std::string>& command) {
  int ends[2];
  if (running() || command.empty() || ::pipe2(ends, O_CLOEXEC) != 0) return false;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<const char*> arguments;
  for (const std::string& word : command) arguments.push_back(word.c_str());
  arguments.push_back(nullptr);
  const int failed = start_program(&pid_, actions, arguments.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  end_ = ends[0];
  if (failed == 0) return true;
  ::close(end_);
  pid_ = -1;
  return false;
}

/// Everything up to its end, which it has reached when this returns true.
bool ChildOutput::take_all(double deadline, std::string* output) {
  constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;
  char block[4096];
  while (output->size() < kMostAnswerBytes) {
    const double left = deadline - monotonic_seconds();
    pollfd wait = {end_, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::clamp(left, 0.0, 0.2) * 1000));
    if (ready <= 0 && left <= 0) return false;
    if (ready <= 0) continue;
    const ssize_t got = ::read(end_, block, sizeof block);
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return false;
    if (got > 0) output->append(block, static_cast<std::size_t>(got));
  }
  return false;
}

bool ChildOutput::finish(double patience_seconds, std::string* output) {
  if (!running()) return false;
  const bool ended = take_all(monotonic_seconds() + patience_seconds, output);
  ::close(end_);
  if (!ended) ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace eaglet::monitor
