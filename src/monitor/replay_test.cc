// Runs made up second by second, judged every five seconds as `watch` would. Prints the table that
// docs/watch.md shows: for each fault when it began and when it was named; for each healthy run that nothing
// was cried.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "monitor/log_reader.h"
#include "monitor/slow_signals.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {
namespace {

constexpr double kStart = 1772600000;

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
    series_.views.push_back(std::move(view));
    std::erase_if(series_.views, [&](const RunView& v) { return t - v.monotonic > 90; });
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

bool in_state(const Verdict& v, RunState state) {
  return v.state.state == state;
}
bool warned(const Verdict& v, const char* name, Level level) {
  for (const Judgement& j : v.judgements)
    if (j.name == name && j.level == level) return true;
  return false;
}

std::string reason_of(const Verdict& v, const char* name) {
  for (const Judgement& j : v.judgements)
    if (j.name == name) return j.reason;
  return {};
}

void stop(Second* s) {
  s->rank_cores = s->worker_cores = 0.001;
  s->busy = 0;
  s->watts = 85;
  s->read_rate = 0;
  s->steps = false;
  s->state = 'S';
}
void spin(Second* s) {
  s->rank_cores = 1.0;
  s->worker_cores = 0.001;
  s->busy = 100;
  s->watts = 118;
  s->read_rate = 0;
  s->steps = false;
}
void load(Second* s, double t) {
  s->busy = 0;
  s->watts = 85;
  s->steps = false;
  s->memory_gb = 2 + t / 4;
  s->rank_cores = 0.5;
  s->state = 'D';
}

std::vector<Scenario> scenarios() {
  const auto always = [](double, Second*) {};
  const auto nothing = [](const Verdict&) { return false; };
  std::vector<Scenario> all;
  all.push_back({"healthy, prints each step", nullptr, 0, 0, 900, always, nothing});
  all.push_back({"healthy and silent (buffered)", nullptr, 0, 0, 1200,
                 [](double, Second* s) { s->prints = false; }, nothing});
  all.push_back({"healthy, prints every 500 steps", nullptr, 0, 0, 2400, always, nothing, true, 1.3, 500});
  all.push_back({"load of 3 min, then training", nullptr, 0, 0, 600,
                 [](double t, Second* s) {
                   if (t < 180) load(s, t);
                 },
                 nothing});
  all.push_back({"compile of 10 min", nullptr, 0, 0, 1200,
                 [](double t, Second* s) {
                   if (t > 700) return;
                   s->busy = 0;
                   s->watts = 90;
                   s->steps = false;
                   s->read_rate = 0;
                   s->rank_cores = 1.0;
                   s->compile_workers = true;
                 },
                 nothing});
  all.push_back({"save of 60 s each 5 min", nullptr, 0, 0, 1500,
                 [](double t, Second* s) {
                   if (std::fmod(t, 300) < 240) return;
                   stop(s);
                   s->rank_cores = 0.3;
                   s->write_rate = 160e6;
                   s->says = fmt::format("Saving checkpoint to out/step-{}", static_cast<int>(t / 300));
                 },
                 nothing});
  all.push_back({"validation of 5 min", nullptr, 0, 0, 1500,
                 [](double t, Second* s) {
                   if (t < 600 || t > 900) return;
                   s->steps = false;
                   s->watts = 400;
                   s->says = "Validation epoch 1/2 started";
                 },
                 nothing});
  all.push_back({"healthy on a CPU", nullptr, 0, 0, 900, [](double, Second* s) { s->read_rate = 0; }, nothing,
                 false, 1.3, 1, 1});
  all.push_back({"pause of 20 s for garbage collection", nullptr, 0, 0, 600,
                 [](double t, Second* s) {
                   if (std::fmod(t, 200) > 180) stop(s);
                 },
                 nothing});
  all.push_back(
      {"collective hang", "STALLED, rank named", 600, 180, 1000,
       [](double t, Second* s) {
         if (t < 600) return;
         spin(s);
         s->odd_rank = 2;
         s->odd_cores = 0;
         s->odd_busy = 0;
       },
       [](const Verdict& v) { return in_state(v, RunState::kStalled) && v.state.suspect_rank == 2; }});
  all.push_back({"hang, every rank spins", "STALLED", 600, 180, 1000,
                 [](double t, Second* s) {
                   if (t >= 600) spin(s);
                 },
                 [](const Verdict& v) { return in_state(v, RunState::kStalled); }});
  all.push_back({"loaders stopped giving data", "STALLED, data", 600, 180, 1000,
                 [](double t, Second* s) {
                   if (t >= 600) stop(s);
                 },
                 [](const Verdict& v) {
                   return in_state(v, RunState::kStalled) && v.headline.find("data") != std::string::npos;
                 }});
  all.push_back({"stopped by SIGSTOP", "STALLED, signal", 300, 120, 600,
                 [](double t, Second* s) {
                   if (t < 300) return;
                   stop(s);
                   s->state = 'T';
                 },
                 [](const Verdict& v) {
                   return in_state(v, RunState::kStalled) && v.headline.find("signal") != std::string::npos;
                 }});
  all.push_back({"stuck on a CPU, one futex", "STALLED", 300, 180, 700,
                 [](double t, Second* s) {
                   s->read_rate = 0;
                   if (t < 300) return;
                   stop(s);
                   s->wait_place = "futex_wait_queue";
                 },
                 [](const Verdict& v) { return in_state(v, RunState::kStalled); }, false, 1.3, 1, 1});
  all.push_back({"starved by data", "warn, power", 300, 120, 600,
                 [](double t, Second* s) {
                   if (t < 300) return;
                   s->busy = 40;
                   s->watts = 200;
                   s->worker_cores = 0.97;
                 },
                 [](const Verdict& v) { return warned(v, "power", Level::kWarn); }});
  all.push_back({"machine paused for an hour", nullptr, 0, 0, 900,
                 [](double t, Second* s) { s->paused = t >= 400 ? 3600 : 0; }, nothing});
  all.push_back(
      {"log rotated", nullptr, 0, 0, 900, [](double t, Second* s) { s->rotated = t >= 400; }, nothing});
  all.push_back({"rank 2 dead, the others spin", "crit, rank named", 600, 60, 1000,
                 [](double t, Second* s) {
                   if (t < 600) return;
                   spin(s);
                   s->rank_lost = 2;
                 },
                 [](const Verdict& v) {
                   return warned(v, "rank_gone", Level::kCrit) &&
                          v.headline.find("rank 2 (pid 102)") != std::string::npos;
                 }});
  all.push_back({"warm start did not take", "crit, first_loss", 0, 15, 200,
                 [](double, Second* s) {
                   s->config = {{"from", "drafts/old"}, {"draft_vocab_size", 32000}};
                   s->extra = " loss_0=10.31";
                 },
                 [](const Verdict& v) { return warned(v, "first_loss", Level::kCrit); }});
  all.push_back({"nothing is packed", "warn, packing", 0, 15, 200,
                 [](double, Second* s) {
                   s->config = {{"train_batches", 35446},
                                {"train_samples", 37312},
                                {"max_seq_len", 8192},
                                {"real_tokens", 80200000}};
                 },
                 [](const Verdict& v) { return warned(v, "packing", Level::kWarn); }});
  all.push_back(
      {"starved by launch", "warn, power: launch", 300, 120, 600,
       [](double t, Second* s) {
         s->read_rate = 1e6;
         if (t < 300) return;
         s->busy = 45;
         s->watts = 210;
         s->rank_cores = 1.0;
         s->worker_cores = 0.1;
       },
       [](const Verdict& v) { return reason_of(v, "power").find("by launch") != std::string::npos; }});
  all.push_back({"two of four loader workers died", "warn, workers", 300, 120, 600,
                 [](double t, Second* s) {
                   s->config = {{"num_workers", 1}};
                   if (t >= 300) s->workers_lost = 2;
                 },
                 [](const Verdict& v) { return warned(v, "workers", Level::kWarn); }});
  all.push_back({"memory leak of 2.4 % in 10 min", "warn, memory_growth", 0, 1860, 2000,
                 [](double t, Second* s) { s->rank_gb = 20 + 0.005 * t; },
                 [](const Verdict& v) { return warned(v, "memory_growth", Level::kWarn); }});
  all.push_back({"GPU memory grows by 1.5 % in 10 min", "warn, gpu_memory_growth", 0, 1860, 2000,
                 [](double t, Second* s) { s->memory_gb = 40 + 0.002 * t; },
                 [](const Verdict& v) { return warned(v, "gpu_memory_growth", Level::kWarn); }});
  all.push_back({"healthy, memory flat after 10 min", nullptr, 0, 0, 3000,
                 [](double t, Second* s) {
                   s->rank_gb = 20 + 0.02 * std::min(t, 600.0);
                   s->memory_gb = 30 + 0.02 * std::min(t, 600.0);
                 },
                 nothing});
  all.push_back({"a token costs a third more energy", "warn, energy", 3600, 900, 4600,
                 [](double t, Second* s) {
                   s->extra = " tokens_per_s=4000";
                   s->joules_per_second = t < 3600 ? 2000 : 2700;
                 },
                 [](const Verdict& v) { return warned(v, "energy", Level::kWarn); }});
  all.push_back({"Xid 79 in the kernel's log", "crit, xid", 300, 30, 400,
                 [](double t, Second* s) {
                   if (t >= 300)
                     s->kernel =
                         "4,9,7,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=101, GPU has fallen off the bus.";
                 },
                 [](const Verdict& v) { return warned(v, "xid", Level::kCrit); }});
  all.push_back({"killed, the kernel's log says why", "DEAD, memory", 300, 30, 400,
                 [](double t, Second* s) {
                   s->dead = t >= 300;
                   if (s->dead) s->kernel = "3,9,7,-;Out of memory: Killed process 101 (python) total-vm:1kB";
                 },
                 [](const Verdict& v) {
                   return in_state(v, RunState::kDead) &&
                          v.headline.find("by the kernel for memory") != std::string::npos;
                 }});
  all.push_back(
      {"diverges", "crit, trend", 300, 100, 500,
       [](double t, Second* s) { s->loss = t < 300 ? "3.0" : "5.0"; },
       [](const Verdict& v) { return reason_of(v, "trend").find("diverges") != std::string::npos; }});
  all.push_back({"plateau for 1000 steps", "told, plateau", 900, 900, 2000,
                 [](double t, Second* s) {
                   if (t > 300) s->loss = "3.2";
                 },
                 [](const Verdict& v) { return warned(v, "plateau", Level::kOk); }});
  all.push_back(
      {"every gradient is cut", "told, clipping", 0, 100, 200,
       [](double, Second* s) {
         s->config = {{"max_grad_norm", 1.0}};
         s->extra = " grad_norm=3.5";
       },
       [](const Verdict& v) { return reason_of(v, "clipping").find("100 %") != std::string::npos; }});
  all.push_back({"served at 1.02, trained to 2.3", "crit, served", 300, 30, 400,
                 [](double t, Second* s) {
                   s->extra = " full_acc_0=0.7 full_acc_1=0.6";
                   if (t >= 300) s->served = 1.02;
                 },
                 [](const Verdict& v) { return warned(v, "served", Level::kCrit); }});
  all.push_back(
      {"weights of a rank drifted apart", "crit, replicas", 300, 30, 400,
       [](double t, Second* s) {
         s->dead = t >= 300;
         s->steps = t < 298;
         if (t >= 299)
           s->says =
               R"({"event":"warning","t":1,"step":40,"message":"weights of rank 2 are not those of rank 0)"
               R"( after step 40: nothing is saved"})";
       },
       [](const Verdict& v) {
         return warned(v, "replicas", Level::kCrit) && v.headline.find("rank 2") != std::string::npos;
       }});
  all.push_back({"accuracy stays at 2 %", "warn, accuracy", 640, 60, 800,
                 [](double, Second* s) { s->extra = " full_acc_0=0.02"; },
                 [](const Verdict& v) { return warned(v, "accuracy", Level::kWarn); }});
  all.push_back({"NaN", "crit, finite", 300, 30, 400,
                 [](double t, Second* s) {
                   if (t >= 300) s->loss = "nan";
                 },
                 [](const Verdict& v) { return warned(v, "finite", Level::kCrit); }});
  all.push_back({"loss exactly zero", "crit, zero", 0, 60, 200, [](double, Second* s) { s->loss = "0.00"; },
                 [](const Verdict& v) { return warned(v, "zero", Level::kCrit); }});
  all.push_back({"killed by the OOM killer", "DEAD, memory", 300, 30, 400,
                 [](double t, Second* s) {
                   s->dead = t >= 300;
                   s->oom_kills = s->dead ? 1 : 0;
                 },
                 [](const Verdict& v) {
                   return in_state(v, RunState::kDead) && v.headline.find("for memory") != std::string::npos;
                 }});
  all.push_back({"killed from outside", "DEAD", 300, 30, 400, [](double t, Second* s) { s->dead = t >= 300; },
                 [](const Verdict& v) { return in_state(v, RunState::kDead); }});
  all.push_back({"CUDA out of memory", "DEAD, reason", 300, 30, 400,
                 [](double t, Second* s) {
                   s->dead = t >= 300;
                   if (s->dead) {
                     s->steps = false;
                     s->says = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB.";
                   }
                 },
                 [](const Verdict& v) {
                   return in_state(v, RunState::kDead) &&
                          v.headline.find("out of memory") != std::string::npos;
                 }});
  all.push_back({"finished", "FINISHED", 300, 30, 400,
                 [](double t, Second* s) {
                   if (t < 295) return;
                   s->steps = false;
                   s->says = "training finished in 00:04:55";
                   s->dead = t >= 300;
                 },
                 [](const Verdict& v) { return in_state(v, RunState::kFinished); }});
  return all;
}

TEST(Replays, EveryFaultInTimeAndNoFalseAlarm) {
  std::string table = "| run | expected | false alarms | named after |\n|---|---|---|---|\n";
  for (const Scenario& scenario : scenarios()) {
    SCOPED_TRACE(scenario.name);
    World world(scenario);
    int alarms = 0;
    double named = -1;
    std::string first_alarm;
    for (double t = 0; t < scenario.length; ++t) {
      world.second(t);
      if (std::fmod(t, 5) != 0 || t < 15) continue;
      const Verdict verdict = make_verdict(world.series(), Thresholds());
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
    table += fmt::format("| {} | {} | {} | {} |\n", scenario.name,
                         scenario.fault == nullptr ? "healthy" : scenario.fault, alarms,
                         scenario.fault == nullptr ? "" : fmt::format("{:.0f} s", named));
  }
  fmt::print("{}", table);
}

}  // namespace
}  // namespace eaglet::monitor
