#pragma once

namespace eaglet {

/// SIGINT and SIGTERM set a flag that long loops ask for; a second one ends the process at once with 128 +
/// signal. SIGUSR1 is only noted, for take_save_request. SIGPIPE and SIGXFSZ are ignored (writes fail with
/// EPIPE or EFBIG instead). Call early, before there are other threads, from the command layer.
/// The three are taken in a thread of their own and reach no other: no call of another thread ends early with
/// EINTR because of them, so what waits long looks at interrupted() every kMillisecondsBetweenInterruptLooks.
/// A process made by fork() hears them itself again; one by posix_spawn needs a mask without them.
void install_interrupt_handlers();

constexpr int kMillisecondsBetweenInterruptLooks = 200;

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
