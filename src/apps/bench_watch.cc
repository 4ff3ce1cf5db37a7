#include "apps/bench_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "apps/terminal.h"
#include "apps/watch_history.h"
#include "apps/watch_target.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "formats/json.h"
#include "monitor/log_reader.h"
#include "monitor/proc_reader.h"
#include "monitor/text_scan.h"

namespace eaglet::apps {
namespace {

double cpu_seconds() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

double resident_bytes() {
  const std::string text = monitor::read_small("/proc/self/statm");
  const auto parts = monitor::words(text);
  return parts.size() < 2
             ? 0
             : monitor::number(parts[1]).value_or(0) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// A session of processes, ended with the object. Most sleep; each tenth computes and writes a little all the
/// time, as ranks and loaders do: what moves costs a look more than what rests.
class BusyTree {
 public:
  explicit BusyTree(int count) {
    leader_ = ::fork();
    if (leader_ != 0) return;
    ::setsid();
    int number = 0;
    while (++number < count)
      if (::fork() == 0) break;
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    while (number % kWorks == 1) work_a_little(nowhere);
    while (true) ::pause();
  }
  ~BusyTree() {
    if (leader_ <= 0) return;
    ::kill(-leader_, SIGKILL);  // the session's process group, which is ours alone
    ::waitpid(leader_, nullptr, 0);
  }
  pid_t leader() const { return leader_; }

 private:
  static constexpr int kWorks = 10;
  static void work_a_little(int nowhere) {
    volatile double sum = 0;
    for (int i = 0; i < 200000; ++i) sum = sum + i;
    if (::write(nowhere, "x", 1) < 0) ::pause();
    ::usleep(50000);
  }
  pid_t leader_ = -1;
};

struct Cost {
  double first_verdict_seconds = 0, cpu_per_look = 0, core_share = 0;
  std::size_t processes = 0;
};

Result<Cost> measure_looks(const BenchWatchFlags& flags, Progress& progress) {
  const BusyTree tree(flags.processes);
  if (tree.leader() < 0) return Status(StatusCode::kBusy, "no process could be started");
  const double begin = monotonic_seconds();
  sleep_until(begin + 0.3);
  Cost cost;
  EAGLET_ASSIGN_OR_RETURN(WatchedRun run, open_run(std::to_string(tree.leader())));
  const double used = cpu_seconds();
  progress.begin("look", static_cast<std::uint64_t>(flags.seconds), "looks");
  for (int i = 0; i < flags.seconds && !interrupted(); ++i) {
    run.sampler->sample();
    const monitor::Verdict verdict = monitor::make_verdict(run.sampler->series(), monitor::Thresholds());
    if (i == 1) cost.first_verdict_seconds = monotonic_seconds() - begin;
    cost.processes = run.sampler->series().views.back().processes->size();
    progress.update(static_cast<std::uint64_t>(i + 1), state_word(verdict.state.state));
    sleep_until(begin + 1.3 + i);
  }
  progress.end("");
  cost.cpu_per_look = (cpu_seconds() - used) / flags.seconds;
  cost.core_share = cost.cpu_per_look;  // one look a second
  return cost;
}

/// A run that prints a record every 1.3 seconds for days, watched every second. Resident memory after the
/// first day and at the end.
void replay_days(int days, Progress& progress, double* first_day, double* end) {
  monitor::LogReader log;
  WatchHistory history;
  monitor::Verdict verdict;
  std::int64_t step = 0;
  progress.begin("replay", static_cast<std::uint64_t>(days), "days");
  for (int day = 0; day < days && !interrupted(); ++day) {
    for (int second = 0; second < 86400; ++second) {
      verdict.wall = 86400.0 * day + second;
      verdict.activity.power_w = 500 + 50 * std::sin(verdict.wall / 60);
      history.add(verdict);
      if (second % 13 < 10) {
        log.feed(fmt::format("step={} loss={:.4f} lr=1e-4 tokens_per_s=7700\n", step,
                             6 + std::exp(-1e-5 * static_cast<double>(step))));
        ++step;
      }
      if (second % 600 == 0) (void)log.facts();
    }
    if (day == 0) *first_day = resident_bytes();
    progress.update(static_cast<std::uint64_t>(day + 1));
  }
  progress.end("");
  *end = resident_bytes();
}

}  // namespace

CLI::App* add_bench_watch(CLI::App& bench, BenchWatchFlags* flags) {
  CLI::App* watch =
      bench.add_subcommand("watch", "what watching costs: CPU per look, first verdict, memory over days");
  watch->add_option("--processes", flags->processes, "size of the watched tree")->check(CLI::Range(1, 10000));
  watch->add_option("--seconds", flags->seconds, "looks, one a second")->check(CLI::Range(2, 3600));
  watch->add_option("--days", flags->days, "length of the replayed run")->check(CLI::Range(1, 60));
  return watch;
}

Status bench_watch(const BenchWatchFlags& flags, Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const Cost cost, measure_looks(flags, *context.progress));
  double first_day = 0, end = 0;
  replay_days(flags.days, *context.progress, &first_day, &end);
  if (interrupted()) return Status(StatusCode::kInterrupted, "interrupted before the end");
  const Json json = {{"schema", 1},
                     {"processes", cost.processes},
                     {"cpu_seconds_per_look", cost.cpu_per_look},
                     {"core_share_at_1_hz", cost.core_share},
                     {"first_verdict_seconds", cost.first_verdict_seconds},
                     {"days", flags.days},
                     {"rss_bytes_after_first_day", first_day},
                     {"rss_bytes_at_end", end}};
  write_whole(
      STDOUT_FILENO,
      context.json
          ? json.dump(2) + "\n"
          : fmt::format("tree             {} processes\nCPU per look     {:.2f} ms = {:.2f} % of a core at 1 "
                        "Hz (aim: under 1 %)\n"
                        "first verdict    {:.1f} s\nmemory           {} after the first day, {} after {}\n",
                        cost.processes, 1000 * cost.cpu_per_look, 100 * cost.core_share,
                        cost.first_verdict_seconds, human_bytes(first_day), human_bytes(end), flags.days));
  return {};
}

}  // namespace eaglet::apps
