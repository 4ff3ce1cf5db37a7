#pragma once

#include <spawn.h>
#include <sys/types.h>

namespace eaglet {

/// posix_spawnp with our environment; 0, or an errno. The program hears all signals, though the thread that
/// starts it may block some (interrupt.h): a mask is kept through exec.
int start_program(pid_t* pid, const posix_spawn_file_actions_t& actions, const char* const arguments[]);

}  // namespace eaglet
