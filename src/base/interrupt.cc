#include "base/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace eaglet {
namespace {
std::atomic<int> pending_signal{0};
std::atomic<int> save_requested{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void on_save_request(int) {
  save_requested.store(1);
}

void on_signal(int signal) {
  if (pending_signal.exchange(signal) != 0) _exit(128 + signal);
}
}  // namespace

void install_interrupt_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction save = {};
  save.sa_handler = on_save_request;
  save.sa_flags = SA_RESTART;
  sigemptyset(&save.sa_mask);
  sigaction(SIGUSR1, &save, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

int interrupt_signal() {
  return pending_signal.load(std::memory_order_relaxed);
}

bool take_save_request() {
  return save_requested.exchange(0) != 0;
}

void set_interrupt_for_test(int signal) {
  pending_signal.store(signal);
}

}  // namespace eaglet
