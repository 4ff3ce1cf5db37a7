#include "base/start_program.h"

#include <unistd.h>

#include <csignal>

namespace eaglet {

int start_program(pid_t* pid, const posix_spawn_file_actions_t& actions, const char* const arguments[]) {
  posix_spawnattr_t attributes;
  if (const int failed = posix_spawnattr_init(&attributes); failed != 0) return failed;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int failed =
      ::posix_spawnp(pid, arguments[0], &actions, &attributes, const_cast<char* const*>(arguments), environ);
  posix_spawnattr_destroy(&attributes);
  return failed;
}

}  // namespace eaglet
