#include "base/interrupt.h"

#include <pthread.h>
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

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

void let_signals_in(int how) {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&ours, signal);
  pthread_sigmask(how, &ours, nullptr);
}

void* take_signals(void*) {
  let_signals_in(SIG_UNBLOCK);
  while (true) ::pause();
  return nullptr;
}

// What is forked has no such thread, and what it starts must be able to hear signals.
void hear_in_the_child() {
  let_signals_in(SIG_UNBLOCK);
}

// All threads but one are deaf: what starts later inherits it. oneDNN before 3.12 points the stack pointer at
// the heap while it multiplies (its issue 4845), where the frame of a signal overwrites what it hits.
void take_signals_in_one_thread() {
  static bool once = false;
  if (once) return;
  once = true;
  pthread_atfork(nullptr, nullptr, hear_in_the_child);
  let_signals_in(SIG_BLOCK);
  pthread_t thread = {};
  if (pthread_create(&thread, nullptr, take_signals, nullptr) == 0)
    pthread_detach(thread);
  else
    let_signals_in(SIG_UNBLOCK);  // no room for a thread: better heard here than not at all
}
}  // namespace

void install_interrupt_handlers() {
  handle(SIGINT, on_signal, 0);
  handle(SIGTERM, on_signal, 0);
  handle(SIGUSR1, on_save_request, SA_RESTART);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  take_signals_in_one_thread();
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
