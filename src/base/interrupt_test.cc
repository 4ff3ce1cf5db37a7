#include "base/interrupt.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/start_program.h"
#include "base/wait_ready.h"

namespace eaglet {
namespace {

bool blocks_ours() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1 &&
         sigismember(&mask, SIGUSR1) == 1;
}

template <class Happened>
bool within_seconds(double seconds, Happened happened) {
  for (const double until = monotonic_seconds() + seconds; monotonic_seconds() < until; ::usleep(1000))
    if (happened()) return true;
  return false;
}

TEST(Interrupt, IsHeardThoughNoThreadThatWorksMayBeDisturbed) {
  install_interrupt_handlers();
  EXPECT_TRUE(blocks_ours());
  bool later_thread_blocks = false;
  std::thread([&] { later_thread_blocks = blocks_ours(); }).join();
  EXPECT_TRUE(later_thread_blocks);
  EXPECT_FALSE(take_save_request());
  ::kill(::getpid(), SIGUSR1);
  EXPECT_TRUE(within_seconds(10, take_save_request));
  EXPECT_FALSE(interrupted());
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(within_seconds(10, interrupted));
  EXPECT_EQ(interrupt_signal(), SIGTERM);
  set_interrupt_for_test(0);
}

TEST(Interrupt, ASecondOneEndsTheProcess) {
  install_interrupt_handlers();
  const pid_t child = ::fork();
  if (child == 0) {
    ::kill(::getpid(), SIGINT);
    if (!within_seconds(10, interrupted)) ::_exit(1);
    ::kill(::getpid(), SIGTERM);
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);  // a forked process has no thread for them: it hears itself
}

TEST(Interrupt, AProgramWeStartHearsAllSignals) {
  install_interrupt_handlers();
  const std::string path = testing::TempDir() + "eaglet_mask_" + std::to_string(::getpid());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const char* const arguments[] = {"grep", "SigBlk", "/proc/self/status", nullptr};
  pid_t child = -1;
  ASSERT_EQ(start_program(&child, actions, arguments), 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  std::ifstream file(path);
  std::string name, mask;
  file >> name >> mask;
  EXPECT_EQ(mask, "0000000000000000");
  ::unlink(path.c_str());
  const char* const missing[] = {"eaglet-no-such-program", nullptr};
  posix_spawn_file_actions_init(&actions);
  EXPECT_NE(start_program(&child, actions, missing), 0);
  posix_spawn_file_actions_destroy(&actions);
}

TEST(WaitReady, EndsWithDataTimeOrASignal) {
  install_interrupt_handlers();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  double began = monotonic_seconds();
  EXPECT_FALSE(wait_ready(ends[0], POLLIN, began + 0.25));
  EXPECT_GE(monotonic_seconds() - began, 0.25);
  std::thread stops([] {
    ::usleep(50000);
    ::kill(::getpid(), SIGTERM);
  });
  began = monotonic_seconds();
  EXPECT_FALSE(wait_ready(ends[0], POLLIN, began + 60));
  EXPECT_LT(monotonic_seconds() - began, 10);
  stops.join();
  set_interrupt_for_test(0);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(wait_ready(ends[0], POLLIN, monotonic_seconds() + 60));
  EXPECT_TRUE(wait_ready(ends[0], POLLIN, 0)) << "what is there is seen, however late";
  ::close(ends[1]);
  ::close(ends[0]);
}

}  // namespace
}  // namespace eaglet
