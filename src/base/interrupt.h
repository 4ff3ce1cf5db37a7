#pragma once

namespace eaglet {

/// SIGINT and SIGTERM set a flag that long loops ask for; a second one ends the process at once with 128 +
/// signal. SIGUSR1 is only noted, for take_save_request. SIGPIPE and SIGXFSZ are ignored (writes fail with
/// EPIPE or EFBIG instead). Call once, early, from the command layer.
void install_interrupt_handlers();

/// The signal that asked us to stop, or 0.
int interrupt_signal();
inline bool interrupted() {
  return interrupt_signal() != 0;
}

/// SIGUSR1 asks a long command to go on and do what is wanted of it meanwhile: a training saves a checkpoint;
/// watch, wait and doctor say one line about how it goes. True once per request.
bool take_save_request();

/// For tests: as if `signal` had arrived (0 clears).
void set_interrupt_for_test(int signal);

}  // namespace eaglet
