// What happens to a run: healthy ones, hangs, faults and ends.
#include <algorithm>

#include "monitor/replay_world.h"

namespace eaglet::monitor {

namespace {

void add_errors(std::vector<Scenario>* all) {
  all->push_back({"a rank prints an error, the others wait", "crit, log_error", 300, 60, 500,
                  [](double t, Second* s) {
                    if (t < 300) return;
                    s->says = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.";
                    spin(s);
                  },
                  [](const Verdict& v) {
                    return warned(v, "log_error", Level::kCrit) &&
                           reason_of(v, "log_error").find("(rank 2)") != std::string::npos;
                  }});
  all->push_back({"an exception that is survived", nullptr, 0, 0, 600,
                  [](double t, Second* s) {
                    if (t >= 300) s->says = "ValueError: sample 17 has no response, skipped";
                  },
                  [](const Verdict&) { return false; }});
}

/// Four ranks were asked for by the launcher that started them here.
void asked_for_four(double, RunView* view, RunSeries* series) {
  const auto& all = *view->processes;
  const bool three = std::none_of(all.begin(), all.end(), [](const auto& p) { return p.pid == 103; });
  if (three)  // nor has it a loader
    std::erase_if(*view->processes, [](const ProcessView& process) { return process.parent == 103; });
  series->environment = {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}};
}

/// Until `t` the others wait for rank 3 in their first collective.
void without_rank_3(Second* s) {
  stop(s);
  s->rank_cores = 0.02;
  s->rank_lost = 3;
}

void add_ranks(std::vector<Scenario>* all) {
  Scenario slow = {"rank 3 starts 90 s after the others",
                   nullptr,
                   0,
                   0,
                   600,
                   [](double t, Second* s) {
                     if (t < 90) without_rank_3(s);
                   },
                   [](const Verdict&) { return false; }};
  slow.touch = asked_for_four;
  all->push_back(slow);
  Scenario never = {"a rank never starts",
                    "crit, ranks",
                    115,
                    60,
                    300,
                    [](double, Second* s) { without_rank_3(s); },
                    [](const Verdict& v) {
                      return warned(v, "ranks", Level::kCrit) &&
                             reason_of(v, "ranks").find("3 of 4 ranks") != std::string::npos;
                    }};
  never.touch = asked_for_four;
  all->push_back(never);
  Scenario elsewhere = {"looked for on the wrong machine",
                        "told, the other machine",
                        0,
                        15,
                        200,
                        [](double, Second* s) { s->steps = false; },
                        [](const Verdict& v) {
                          return in_state(v, RunState::kUnknownState) && v.level != Level::kCrit &&
                                 v.headline.find("node7") != std::string::npos &&
                                 v.next.find("--host node7") != std::string::npos;
                        }};
  elsewhere.touch = [](double, RunView* view, RunSeries* series) {
    view->processes.reset();
    view->devices.reset();
    view->device_processes.reset();
    series->other_host = {"node7", "node1", "its launch record"};
  };
  all->push_back(elsewhere);
}

}  // namespace

std::vector<Scenario> event_scenarios() {
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
                 [](const Verdict& v) {
                   // Which ones, and when they were there for the last time; not those that live.
                   const std::string said = reason_of(v, "workers");
                   const std::size_t first = said.find(" gone, last seen at 20");
                   return warned(v, "workers", Level::kWarn) && first != std::string::npos &&
                          said.find(" gone, last seen at 20", first + 1) == said.rfind(" gone,");
                 }});
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
  add_errors(&all);
  add_ranks(&all);
  return all;
}

}  // namespace eaglet::monitor
