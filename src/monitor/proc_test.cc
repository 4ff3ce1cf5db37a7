#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/test_directory.h"
#include "monitor/orphans.h"
#include "monitor/proc_reader.h"
#include "monitor/sampler.h"
#include "monitor/target.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {
namespace {

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// A stat line as the kernel writes it.
std::string stat_line(int pid, const std::string& name, char state, int parent, int session, int ticks,
                      int start) {
  return std::to_string(pid) + " (" + name + ") " + state + " " + std::to_string(parent) + " " +
         std::to_string(session) + " " + std::to_string(session) + " 0 -1 4194304 100 0 7 0 " +
         std::to_string(ticks) + " 50 0 0 20 0 3 0 " + std::to_string(start) +
         " 1000000 250 18446744073709551615 0 0 0\n";
}

HostRoots made_up_tree() {
  const std::string root = test_directory();
  put(root + "/proc/uptime", "5000.00 9000.00\n");
  put(root + "/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    40 kB\n");
  put(root + "/proc/10/stat", stat_line(10, "odd) (name", 'S', 1, 10, 200, 100));
  put(root + "/proc/10/cmdline", std::string("python\0train.py\0--rank\0"
                                             "2\0",
                                             24));
  put(root + "/proc/10/io", "rchar: 5000\nwchar: 70\nsyscr: 1\nread_bytes: 4096\nwrite_bytes: 0\n");
  put(root + "/proc/10/schedstat", "1000000000 2000000000 7\n");
  put(root + "/proc/10/wchan", "futex_wait_queue");
  put(root + "/proc/10/environ", std::string("RANK=2\0MY_API_KEY=abc\0", 22));
  put(root + "/proc/10/cgroup", "0::/box\n");
  put(root + "/proc/11/stat", stat_line(11, "pt_data_worker", 'R', 10, 10, 100, 200));
  put(root + "/proc/12/stat", "12 (half");
  put(root + "/proc/self/x", "");
  put(root + "/cgroup/box/cpu.max", "150000 100000\n");
  put(root + "/cgroup/box/cpu.stat", "usage_usec 5\nthrottled_usec 3000000\n");
  put(root + "/cgroup/box/memory.current", "900\n");
  put(root + "/cgroup/box/memory.max", "1000\n");
  put(root + "/cgroup/box/memory.events", "low 0\noom 2\noom_kill 1\n");
  HostRoots roots;
  roots.proc = root + "/proc";
  roots.cgroup = root + "/cgroup";
  roots.shm = root;
  return roots;
}

TEST(ProcReader, AMadeUpTree) {
  const ProcReader reader(made_up_tree());
  EXPECT_EQ(reader.all_pids(), (std::vector<std::int64_t>{10, 11, 12}));
  auto process = reader.basics(10);
  ASSERT_TRUE(process.has_value());
  EXPECT_EQ(process->name, "odd) (name");
  EXPECT_EQ(process->state, 'S');
  EXPECT_EQ(process->cpu_seconds, 2.5);
  EXPECT_EQ(process->start_time, 100);
  reader.details(&*process);
  EXPECT_EQ(process->command, "python train.py --rank 2");
  EXPECT_EQ(process->rank, 2);
  EXPECT_EQ(process->read_chars, 5000);
  EXPECT_EQ(process->run_wait_seconds, 2);
  EXPECT_EQ(process->wait_place, "futex_wait_queue");
  EXPECT_EQ(reader.environment(10)["MY_API_KEY"], "(hidden)");
  EXPECT_FALSE(reader.basics(12).has_value()) << "half a file is a process that vanished";
  EXPECT_FALSE(reader.basics(99).has_value());
  EXPECT_EQ(run_tree({10}, reader), (std::vector<std::int64_t>{10, 11}));
}

TEST(ProcReader, LimitsOfAContainer) {
  const ProcReader reader(made_up_tree());
  const HostView host = reader.host(10);
  EXPECT_EQ(host.quota_cores, 1.5);
  EXPECT_EQ(host.throttled_seconds, 3);
  EXPECT_EQ(host.cgroup_limit, 1000);
  EXPECT_EQ(host.oom_kills, 1);
  EXPECT_EQ(host.memory_available, 40 * 1024);
}

/// A child of ours that is surely ended again.
class Child {
 public:
  explicit Child(const std::string& script, const std::string& log) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setsid();
      if (!log.empty()) {
        (void)!std::freopen(log.c_str(), "a", stdout);
        ::dup2(1, 2);
      }
      ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~Child() {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGCONT);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

Verdict look(const std::string& target, double seconds, const Thresholds& thresholds = {}) {
  const ProcReader reader;
  const auto found = resolve_target(target, reader);
  EXPECT_TRUE(found.ok()) << found.status().message();
  if (!found.ok()) return {};
  Sampler sampler(*found, reader, nullptr);
  const double until = monotonic_seconds() + seconds;
  while (monotonic_seconds() < until) {
    sampler.sample();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return make_verdict(sampler.series(), thresholds);
}

bool has_line(const std::string& path, const char* text) {
  const auto content = read_file(path);
  return content.ok() && content->find(text) != std::string::npos;
}

TEST(LiveRun, FoundByItsLogAndSeenRunning) {
  const std::string log = test_directory() + "/train.log";
  const Child child("i=0; while :; do i=$((i+1)); echo step=$i loss=7.$i; sleep 0.1; done", log);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const Verdict verdict = look(log, 1.5);
  EXPECT_STREQ(state_word(verdict.state.state), "RUNNING") << verdict.headline;
  EXPECT_GT(verdict.step, 3);
  const Verdict by_pid = look(std::to_string(child.pid()), 1.2);
  EXPECT_EQ(by_pid.log_path, log) << "the log of a process is found through its open files";
}

TEST(LiveRun, StoppedBySignal) {
  const std::string log = test_directory() + "/train.log";
  const Child child(
      "i=0; while :; do i=$((i+1)); echo step=$i loss=7.$i; read x < /dev/null; done | while read l; do echo "
      "$l; done",
      log);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(-child.pid(), SIGSTOP);
  const Verdict verdict = look(std::to_string(child.pid()), 1.2);
  EXPECT_STREQ(state_word(verdict.state.state), "STALLED") << verdict.headline;
  EXPECT_NE(verdict.next.find("kill -CONT"), std::string::npos);
}

TEST(LiveRun, SleeperIsStalledOnceItsTimeIsUp) {
  const std::string log = test_directory() + "/train.log";
  const Child child("echo step=1 loss=7.0; echo step=2 loss=6.9; sleep 60", log);
  const double deadline = monotonic_seconds() + 10;
  while (monotonic_seconds() < deadline && !has_line(log, "step=2"))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // its own start is over
  Thresholds impatient;
  impatient.stall_min_seconds = 0.5;
  const Verdict verdict = look(std::to_string(child.pid()), 1.6, impatient);
  EXPECT_STREQ(state_word(verdict.state.state), "STALLED") << verdict.headline;
  const Verdict patient = look(std::to_string(child.pid()), 1.0);
  EXPECT_STREQ(state_word(patient.state.state), "RUNNING") << patient.headline;
}

TEST(LiveRun, RotatedLogIsFollowed) {
  const std::string log = test_directory() + "/train.log";
  put(log, "step=1 loss=7.0\n");
  LogTail tail(log);
  ASSERT_TRUE(tail.poll());
  std::ofstream(log, std::ios::app) << "step=2 loss=6.9\n";
  std::filesystem::rename(log, log + ".1");
  put(log, "step=3 loss=6.8\n");
  ASSERT_TRUE(tail.poll());
  EXPECT_EQ(tail.facts().last_step, 3);
  EXPECT_EQ(tail.facts().series("loss").size(), 3u);
  put(log, "");  // truncated
  ASSERT_TRUE(tail.poll());
  std::ofstream(log, std::ios::app) << "step=4 loss=6.7\n";
  ASSERT_TRUE(tail.poll());
  EXPECT_EQ(tail.facts().last_step, 4);
}

TEST(Target, NothingOfThatName) {
  EXPECT_EQ(resolve_target("999999999", ProcReader()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(resolve_target("no-run-is-called-so-7f3a", ProcReader()).status().code(), StatusCode::kNotFound);
}

TEST(Orphans, AWorkerWhoseRunDiedIsFoundAndEndedByItsRunId) {
  ::setenv("EAGLET_RUN_ID", "orphan-test-5c1e", 1);
  const pid_t leader = ::fork();
  if (leader == 0) {
    ::setsid();
    if (::fork() == 0) {
      ::execl("/bin/sleep", "sleep", "60", nullptr);
      ::_exit(127);
    }
    ::usleep(100000);
    ::_exit(0);  // the run dies, its worker stays
  }
  ::unsetenv("EAGLET_RUN_ID");
  ::waitpid(leader, nullptr, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const ProcReader reader;
  const auto of_test = [&] {
    std::vector<Orphan> found;
    for (const Orphan& orphan : find_orphans(reader, nullptr, 0).orphans)
      if (orphan.run_id == "orphan-test-5c1e") found.push_back(orphan);
    return found;
  };
  const auto found = of_test();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].proof.find("parent is gone"), std::string::npos);
  EXPECT_TRUE(end_orphans(found, "another-run", 1, reader).empty());
  EXPECT_EQ(of_test().size(), 1u) << "ended by the wrong run id";
  EXPECT_TRUE(end_orphans(found, "orphan-test-5c1e", 2, reader).empty());
  EXPECT_TRUE(of_test().empty());
}

}  // namespace
}  // namespace eaglet::monitor
