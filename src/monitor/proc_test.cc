#include <gtest/gtest.h>
#include <sys/resource.h>
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
#include "base/interrupt.h"
#include "base/test_directory.h"
#include "monitor/kept_tables.h"
#include "monitor/orphans.h"
#include "monitor/port_look.h"
#include "monitor/proc_reader.h"
#include "monitor/sampler.h"
#include "monitor/shm_leftovers.h"
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
  EXPECT_TRUE(std::isnan(process->disk_wait_seconds)) << "half a line of a made-up kernel";
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

TEST(KeptTables, TheSameAsOpenedAnew) {
  const ProcReader reader;
  KeptTables kept;
  const pid_t child = ::fork();
  if (child == 0)
    while (true) ::pause();
  for (int look = 0; look < 3; ++look) {
    auto anew = reader.basics(child), again = reader.basics(child, &kept);
    ASSERT_TRUE(anew && again);
    reader.details(&*anew);
    reader.details(&*again, &kept);
    EXPECT_EQ(again->pid, child);
    EXPECT_EQ(again->name, anew->name);
    EXPECT_EQ(again->start_time, anew->start_time);
    EXPECT_EQ(again->parent, ::getpid());
    EXPECT_EQ(again->write_chars, anew->write_chars);
    EXPECT_EQ(again->command, anew->command);
  }
  EXPECT_EQ(kept.open(), 4u) << "stat, io, schedstat and wchan";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(reader.basics(child, &kept))
      << "a kept descriptor is no other process, whoever has the number";
  kept.forget(child);
  EXPECT_EQ(kept.open(), 0u);
}

TEST(KeptTables, AMadeUpTreeIsNotKept) {
  const HostRoots roots = made_up_tree();
  const ProcReader reader(roots);
  KeptTables kept;
  auto process = reader.basics(10, &kept);
  ASSERT_TRUE(process);
  reader.details(&*process, &kept);
  EXPECT_EQ(process->read_chars, 5000);
  EXPECT_EQ(process->run_wait_seconds, 2);
  EXPECT_EQ(process->wait_place, "futex_wait_queue");
  EXPECT_EQ(kept.open(), 0u);
  std::filesystem::remove_all(roots.proc + "/10");
  EXPECT_FALSE(reader.basics(10, &kept));
}

TEST(KeptTables, NoMoreThanHalfOfWhatTheProgramMayOpen) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {14, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  KeptTables kept;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const ProcReader reader;
  for (const std::int64_t pid : {::getpid(), ::getppid(), pid_t{1}}) {
    auto process = reader.basics(pid, &kept);
    ASSERT_TRUE(process) << pid;
    reader.details(&*process, &kept);
    EXPECT_EQ(process->pid, pid);
  }
  EXPECT_EQ(kept.open(), 7u);
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

TEST(ProcReader, PagesOfFilesArePartOfNoLimit) {
  const HostRoots roots = made_up_tree();
  put(roots.cgroup + "/box/memory.stat", "anon 150\nfile 700\ninactive_file 500\nactive_file 200\nshmem 0\n");
  EXPECT_EQ(ProcReader(roots).host(10).cgroup_bytes, 200) << "900 less what the kernel gives back";
  put(roots.proc + "/11/cgroup", "5:memory:/old\n4:cpu,cpuacct:/old\n");
  put(roots.cgroup + "/memory/old/memory.usage_in_bytes", "1000\n");
  put(roots.cgroup + "/memory/old/memory.limit_in_bytes", "2000\n");
  put(roots.cgroup + "/memory/old/memory.stat",
      "cache 900\ntotal_inactive_file 300\ntotal_active_file 100\n");
  const HostView old = ProcReader(roots).host(11);
  EXPECT_EQ(old.cgroup_bytes, 600);
  EXPECT_EQ(old.cgroup_limit, 2000);
  put(roots.cgroup + "/cpu/old/cpu.cfs_quota_us", "250000\n");
  put(roots.cgroup + "/cpu/old/cpu.cfs_period_us", "100000\n");
  put(roots.cgroup + "/cpu/old/cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 7000000000\n");
  const HostView cores = ProcReader(roots).host(11);
  EXPECT_EQ(cores.quota_cores, 2.5) << "version 1 of control groups";
  EXPECT_EQ(cores.throttled_seconds, 7);
}

TEST(ProcReader, PressureOfTheContainerElseOfTheMachine) {
  const HostRoots roots = made_up_tree();
  EXPECT_TRUE(std::isnan(ProcReader(roots).host(10).cpu_some_seconds)) << "an old kernel counts none";
  put(roots.proc + "/pressure/cpu", "some avg10=1.00 avg60=0.00 avg300=0.00 total=4000000\n");
  put(roots.proc + "/pressure/memory",
      "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
      "total=1500000\n");
  const HostView machine = ProcReader(roots).host(10);
  EXPECT_EQ(machine.cpu_some_seconds, 4);
  EXPECT_TRUE(std::isnan(machine.cpu_full_seconds));
  EXPECT_EQ(machine.memory_some_seconds, 2.5);
  EXPECT_EQ(machine.memory_full_seconds, 1.5);
  EXPECT_FALSE(machine.pressure_of_container);
  put(roots.cgroup + "/box/cpu.pressure", "some avg10=0 total=7000000\nfull avg10=0 total=6000000\n");
  put(roots.cgroup + "/box/memory.pressure", "some avg10=0 total=0\nfull avg10=0 total=0\n");
  const HostView box = ProcReader(roots).host(10);
  EXPECT_EQ(box.cpu_full_seconds, 6);
  EXPECT_EQ(box.memory_some_seconds, 0);
  EXPECT_TRUE(box.pressure_of_container);
}

TEST(ProcReader, NetworkWithoutTheLoopback) {
  const HostRoots roots = made_up_tree();
  EXPECT_TRUE(std::isnan(ProcReader(roots).host(10).network_bytes));
  put(roots.proc + "/10/net/dev",
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
      "    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n"
      "  eth0:5000 1 0 0 0 0 0 0 70 1 0 0 0 0 0 0\n");
  EXPECT_EQ(ProcReader(roots).host(10).network_bytes, 5070);
}

void listen_on(const HostRoots& roots, const std::string& inode, int user) {
  put(roots.proc + "/net/tcp",
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000 " +
          std::to_string(user) + " 0 " + inode + " 1 0 100 0 0 10 0\n");
}

TEST(PortLook, APortInOtherHands) {
  const HostRoots roots = made_up_tree();
  const ProcReader reader(roots);
  const std::map<std::string, std::string> environment = {{"MASTER_PORT", "29500"}};
  EXPECT_EQ(look_at_port(reader, {}, {10}, 100).port, -1) << "no port, nothing to say";
  EXPECT_FALSE(look_at_port(reader, environment, {10}, 100).taken) << "free";
  const int us = static_cast<int>(::getuid());
  listen_on(roots, "777", us);
  put(roots.proc + "/77/stat", stat_line(77, "python", 'S', 1, 77, 5, 100));
  std::filesystem::create_directories(roots.proc + "/77/fd");
  std::filesystem::create_symlink("socket:[777]", roots.proc + "/77/fd/5");
  put(roots.proc + "/77/environ", std::string("EAGLET_RUN_ID=k25-a\0MASTER_PORT=29500\0", 38));
  const double later = 100 + 300.0 * static_cast<double>(::sysconf(_SC_CLK_TCK));
  const PortSeen taken = look_at_port(reader, environment, {10, 11}, later);
  EXPECT_TRUE(taken.taken);
  EXPECT_EQ(taken.pid, 77);
  EXPECT_EQ(taken.run_id, "k25-a");
  EXPECT_EQ(taken.name, "python");
  EXPECT_FALSE(look_at_port(reader, environment, {10, 77}, later).taken) << "one of ours";
  EXPECT_FALSE(look_at_port(reader, environment, {10}, 100).taken)
      << "begun together: a rank of the same start";
  auto elsewhere = environment;
  elsewhere["MASTER_ADDR"] = "node-of-another-machine";
  EXPECT_EQ(look_at_port(reader, elsewhere, {10}, later).port, -1);
  listen_on(roots, "778", us + 1);
  const PortSeen hidden = look_at_port(reader, environment, {10}, later);
  EXPECT_TRUE(hidden.taken) << "another user's, whose descriptors nobody shows us";
  EXPECT_EQ(hidden.pid, -1);
  EXPECT_EQ(hidden.user, us + 1);
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

TEST(ShmLeftovers, OnlyWhatNobodyMapsOrHasOpen) {
  const HostRoots roots = made_up_tree();
  const ProcReader reader(roots);
  for (const char* name : {"torch_1_2", "torch_3_4", "nccl-abc", "sem.mp-x", "other"})
    put(roots.shm + "/" + name, "12345");
  put(roots.proc + "/10/maps", "7f00-7f01 rw-s 0 00:1a 5 " + roots.shm + "/torch_1_2\n");
  put(roots.proc + "/11/maps", "7f00-7f01 rw-p 0 00:00 0\n");
  std::filesystem::create_directories(roots.proc + "/11/fd");
  std::filesystem::create_symlink(roots.shm + "/nccl-abc", roots.proc + "/11/fd/9");
  const auto left = shm_leftovers(reader);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_TRUE(left[0].path.ends_with("torch_3_4") || left[1].path.ends_with("torch_3_4"));
  EXPECT_EQ(left[0].bytes, 5);
  std::filesystem::remove(roots.proc + "/11/maps");
  EXPECT_TRUE(shm_leftovers(reader).empty()) << "one that cannot be looked into may map them";
}

TEST(Target, NothingOfThatName) {
  EXPECT_EQ(resolve_target("999999999", ProcReader()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(resolve_target("no-run-is-called-so-7f3a", ProcReader()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(resolve_target("/dev/null", ProcReader()).status().code(), StatusCode::kUsage)
      << "half of all processes have it open";
}

/// A worker that goes on while its run is dead.
void leave_a_worker(const char* run_id, bool hears_term) {
  ::setenv("EAGLET_RUN_ID", run_id, 1);
  const pid_t leader = ::fork();
  if (leader == 0) {
    ::setsid();
    if (::fork() == 0) {
      if (!hears_term) ::signal(SIGTERM, SIG_IGN);
      ::execl("/bin/sleep", "sleep", "60", nullptr);
      ::_exit(127);
    }
    ::usleep(100000);
    ::_exit(0);  // the run dies, its worker stays
  }
  ::unsetenv("EAGLET_RUN_ID");
  ::waitpid(leader, nullptr, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

std::vector<Orphan> orphans_of(const char* run_id) {
  std::vector<Orphan> found;
  for (const Orphan& orphan : find_orphans(ProcReader(), nullptr, 0).orphans)
    if (orphan.run_id == run_id) found.push_back(orphan);
  return found;
}

TEST(Orphans, AWorkerWhoseRunDiedIsFoundAndEndedByItsRunId) {
  leave_a_worker("orphan-test-5c1e", true);
  const ProcReader reader;
  const auto of_test = [] { return orphans_of("orphan-test-5c1e"); };
  const auto found = of_test();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].proof.find("parent is gone"), std::string::npos);
  EXPECT_TRUE(end_orphans(found, "another-run", 1, reader).empty());
  EXPECT_EQ(of_test().size(), 1u) << "ended by the wrong run id";
  EXPECT_TRUE(end_orphans(found, "orphan-test-5c1e", 2, reader).empty());
  EXPECT_TRUE(of_test().empty());
}

TEST(Orphans, WhoStopsTheWaitDoesNotAskForKill) {
  leave_a_worker("orphan-test-7b2d", false);
  const auto found = orphans_of("orphan-test-7b2d");
  ASSERT_EQ(found.size(), 1u);
  std::thread stops([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    set_interrupt_for_test(SIGINT);
  });
  const double began = monotonic_seconds();
  EXPECT_EQ(end_orphans(found, "orphan-test-7b2d", 60, ProcReader()).size(), 1u);
  EXPECT_LT(monotonic_seconds() - began, 20);
  stops.join();
  set_interrupt_for_test(0);
  EXPECT_EQ(orphans_of("orphan-test-7b2d").size(), 1u) << "TERM was asked for, KILL was not";
  EXPECT_TRUE(end_orphans(found, "orphan-test-7b2d", 0.1, ProcReader()).empty());
}

}  // namespace
}  // namespace eaglet::monitor
