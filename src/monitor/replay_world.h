// Runs made up second by second, judged every five seconds as `watch` would. A test hands scenarios to
// run_replays, which prints the rows that docs/watch.md shows: for each fault when it began and when it was
// named; for each healthy run that nothing was cried.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "base/files.h"
#include "monitor/log_reader.h"
#include "monitor/sampler.h"
#include "monitor/slow_signals.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {

inline constexpr double kStart = 1772600000;

/// What the made-up run does during one second.
struct Second {
  double rank_cores = 1.0, worker_cores = 0.4;  // each
  double busy = 95, watts = 560;
  double read_rate = 200e6, write_rate = 0;
  double memory_gb = 60;
  char state = 'R';
  bool steps = true;   // trains
  bool prints = true;  // and says so
  std::int64_t odd_rank = -1;
  double odd_cores = 1.0, odd_busy = 95;
  bool dead = false;
  double oom_kills = 0;  // as the container counts them
  std::string says;      // a line for the log, once
  std::string loss = "";
  const char* wait_place = "";
  bool compile_workers = false;
  int workers_lost = 0;
  int rank_lost = -1;
  double paused = 0;     // seconds that the clock jumped so far
  bool rotated = false;  // the log began anew
  double rank_gb = 20, joules_per_second = 0;
  std::string extra = "";  // more of a record: " full_acc_0=0.7"
  std::string kernel = "";
  double served = kNotKnown;
  Json config;
};

struct Scenario {
  const char* name;
  const char* fault;  // nullptr: healthy
  double fault_at;    // seconds
  double named_within;
  double length;
  std::function<void(double t, Second*)> run;
  std::function<bool(const Verdict&)> named;  // the fault, as it must be named
  bool devices = true;
  double step_seconds = 1.3;
  int print_every = 1;
  int ranks = 4;
  /// What no field of a Second says: changes the view, and what the series knows beside it.
  std::function<void(double t, RunView*, RunSeries*)> touch = nullptr;
};

class World {
 public:
  explicit World(const Scenario& scenario) : s_(scenario) {}

  void second(double t) {
    Second now;
    s_.run(t, &now);
    if (now.rotated && !rotated_) {
      rotated_ = true;
      reader_ = LogReader();
      records_ = 0;
      bytes_ = 0;
    }
    paused_ = now.paused;
    if (!now.says.empty() && now.says != said_) {
      said_ = now.says;
      log(now.says + "\n", t);
    }
    if (now.steps) {
      progress_ += 1 / s_.step_seconds;
      while (step_ + 1 <= static_cast<std::int64_t>(progress_)) {
        ++step_;
        if (now.prints && step_ % s_.print_every == 0) {
          ++records_;
          logged_step_ = step_;
          const std::string loss =
              now.loss.empty()
                  ? fmt::format("{:.3f}", 6.5 + 4.5 * std::exp(-static_cast<double>(step_) / 400))
                  : now.loss;
          const double clock = std::fmod(t + now.paused + 36000, 86400);
          log(fmt::format("[{:02}:{:02}:{:02}] step={} loss={} lr=1e-4{}\n", static_cast<int>(clock / 3600),
                          static_cast<int>(clock / 60) % 60, static_cast<int>(clock) % 60, step_, loss,
                          now.extra),
              t);
        }
      }
    }
    view(t, now);
  }

  /// The log's facts are copied for a verdict only: they are long.
  const RunSeries& series() {
    series_.log = reader_.facts();
    return series_;
  }

 private:
  void log(const std::string& text, double t) {
    reader_.feed(text);
    mtime_ = kStart + t + paused_;
    bytes_ += static_cast<double>(text.size());
  }

  void view(double t, const Second& now) {
    RunView view;
    view.wall = kStart + t + now.paused;
    view.monotonic = t;
    view.only_this_run = true;
    view.host.oom_kills = now.oom_kills;
    view.host.memory_total = 512e9;
    joules_ += now.joules_per_second;
    std::vector<ProcessView> processes;
    if (!now.dead) {
      for (int r = 0; r < s_.ranks; ++r) {
        const bool odd = now.odd_rank == r;
        cpu_[r] += odd ? now.odd_cores : now.rank_cores;
        ProcessView p = process(100 + r, fmt::format("python train.py --rank {}", r), cpu_[r], t);
        p.rank = r;
        p.state = now.state;
        p.wait_place = now.wait_place;
        p.rss_bytes = now.rank_gb * 1e9;
        p.read_chars = p.read_bytes = read_ += now.read_rate / s_.ranks;
        p.write_chars = p.write_bytes = written_ += now.write_rate / s_.ranks;
        if (r != now.rank_lost) processes.push_back(p);
        worker_cpu_ += now.worker_cores;
        ProcessView w = process(200 + r, "pt_data_worker", worker_cpu_ / s_.ranks, t);
        w.parent = 100 + r;
        if (r >= now.workers_lost) processes.push_back(w);
      }
      if (now.compile_workers) processes.push_back(process(300, "python compile_worker", 4 * t, t));
    }
    view.processes = processes;
    if (s_.devices) {
      view.devices.emplace();
      view.device_processes.emplace();
      for (int d = 0; d < s_.ranks; ++d) {
        DeviceView device;
        device.index = d;
        device.name = "H100";
        const bool odd = now.odd_rank == d;
        device.busy_pct = now.dead ? 0 : odd ? now.odd_busy : now.busy;
        device.power_w = now.dead ? 70 : odd && now.odd_busy < 5 ? 90 : now.watts;
        device.limit_w = 700;
        device.used_bytes = (now.dead ? 0.5 : now.memory_gb) * 1e9;
        device.total_bytes = 80e9;
        device.energy_j = joules_;
        view.devices->push_back(device);
        if (!now.dead) view.device_processes->push_back({100 + d, d, now.memory_gb * 1e9});
      }
    }
    series_.log_known = true;
    series_.log_path = "out/train.log";
    series_.live = true;
    view.log.known = true;
    view.log.bytes = bytes_;
    view.log.mtime = mtime_;
    view.log.records = records_;
    view.log.last_step = logged_step_;
    if (std::fmod(t, 30) == 0) series_.slow.push_back(slow_point_of(view, reader_.facts()));
    if (!now.kernel.empty() && !series_.kernel) series_.kernel = {*parse_kernel_record(now.kernel)};
    series_.served_acceptance = now.served;
    if (!now.config.is_null()) series_.config = now.config;
    if (!series_.views.empty() && was_paused(series_.views.back(), view)) series_.views.clear();
    if (s_.touch) s_.touch(t, &view, &series_);
    series_.views.push_back(std::move(view));
    thin_views(&series_.views);
  }

  static ProcessView process(std::int64_t pid, const std::string& command, double cpu, double t) {
    ProcessView p;
    p.pid = pid;
    p.parent = 50;
    p.start_time = 1000 + static_cast<double>(pid);
    p.state = 'S';
    p.command = command;
    p.cpu_seconds = cpu;
    p.elapsed_seconds = t + 1;
    return p;
  }

  const Scenario& s_;
  RunSeries series_;
  LogReader reader_;
  std::string said_;
  double cpu_[16] = {}, worker_cpu_ = 0, read_ = 0, written_ = 0, progress_ = 0, bytes_ = 0, joules_ = 0,
         mtime_ = kNotKnown;
  std::int64_t step_ = 0, records_ = 0, logged_step_ = -1;
  bool rotated_ = false;
  double paused_ = 0;
};

/// What happens to a run (replay_events_test.cc); what its machine, its configuration and its learning look
/// like (replay_layers_test.cc, replay_learning_test.cc).
std::vector<Scenario> event_scenarios();
std::vector<Scenario> machine_scenarios();
std::vector<Scenario> configuration_scenarios();
std::vector<Scenario> learning_scenarios();

inline bool in_state(const Verdict& v, RunState state) {
  return v.state.state == state;
}
inline bool warned(const Verdict& v, const char* name, Level level) {
  for (const Judgement& j : v.judgements)
    if (j.name == name && j.level == level) return true;
  return false;
}

inline std::string reason_of(const Verdict& v, const char* name) {
  for (const Judgement& j : v.judgements)
    if (j.name == name) return j.reason;
  return {};
}

inline void stop(Second* s) {
  s->rank_cores = s->worker_cores = 0.001;
  s->busy = 0;
  s->watts = 85;
  s->read_rate = 0;
  s->steps = false;
  s->state = 'S';
}
inline void spin(Second* s) {
  s->rank_cores = 1.0;
  s->worker_cores = 0.001;
  s->busy = 100;
  s->watts = 118;
  s->read_rate = 0;
  s->steps = false;
}
inline void load(Second* s, double t) {
  s->busy = 0;
  s->watts = 85;
  s->steps = false;
  s->memory_gb = 2 + t / 4;
  s->rank_cores = 0.5;
  s->state = 'D';
}

/// `judged` (may be null): gets the names of all that warned or was critical.
/// What somebody who was woken up is to type.
inline void expect_a_command(const Verdict& verdict) {
  const std::string first = verdict.next.substr(0, verdict.next.find(' '));
  const std::set<std::string> programs = {"eaglet", "py-spy", "kill", "nvidia-smi", "grep", "ps",   "df",
                                          "cat",    "ls",     "ss",   "dmesg",      "tail", "start"};
  EXPECT_TRUE(programs.count(first) != 0) << "no command: " << verdict.next << "\nfor " << verdict.headline;
  EXPECT_EQ(verdict.next.find('{'), std::string::npos) << verdict.next;
}

inline void run_replays(const std::vector<Scenario>& scenarios, std::set<std::string>* judged) {
  const auto docs = read_file(EAGLET_TESTDATA "/../docs/watch.md");
  ASSERT_TRUE(docs.ok());
  std::string table;
  for (const Scenario& scenario : scenarios) {
    SCOPED_TRACE(scenario.name);
    World world(scenario);
    int alarms = 0;
    double named = -1;
    std::string first_alarm;
    for (double t = 0; t < scenario.length; ++t) {
      world.second(t);
      if (std::fmod(t, 5) != 0 || t < 15) continue;
      const Verdict verdict = make_verdict(world.series(), Thresholds());
      for (const Judgement& j : verdict.judgements)
        if (judged != nullptr && (j.level == Level::kWarn || j.level == Level::kCrit)) judged->insert(j.name);
      if (verdict.level == Level::kWarn || verdict.level == Level::kCrit) expect_a_command(verdict);
      const bool begun = scenario.fault != nullptr && t >= scenario.fault_at;
      if (begun && named < 0 && scenario.named(verdict)) named = t - scenario.fault_at;
      const bool alarm = verdict.level == Level::kCrit || verdict.level == Level::kWarn ||
                         verdict.state.state == RunState::kLate;
      if (!begun && alarm && (scenario.fault == nullptr || t < scenario.fault_at)) {
        ++alarms;
        if (first_alarm.empty())
          first_alarm = fmt::format("at {} s: {} {}", t, state_word(verdict.state.state), verdict.headline);
      }
    }
    EXPECT_EQ(alarms, 0) << first_alarm;
    if (scenario.fault != nullptr) {
      EXPECT_GE(named, 0) << "never named";
      EXPECT_LE(named, scenario.named_within);
    }
    const std::string row = fmt::format("| {} | {} | {} | {} |\n", scenario.name,
                                        scenario.fault == nullptr ? "healthy" : scenario.fault, alarms,
                                        scenario.fault == nullptr ? "" : fmt::format("{:.0f} s", named));
    EXPECT_NE(docs->find(row), std::string::npos) << "docs/watch.md has another row than\n" << row;
    table += row;
  }
  fmt::print("{}", table);
}

}  // namespace eaglet::monitor
