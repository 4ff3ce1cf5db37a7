#include "monitor/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/evidence.h"
#include "monitor/run_end.h"
#include "monitor/server_activity.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

class StateRule {
 public:
  StateRule(const RunSeries& series, const Activity& activity, const Thresholds& thresholds)
      : series_(series), a_(activity), t_(thresholds) {}

  StateVerdict judge() {
    v_.phase = infer_phase(series_, a_, t_);
    v_.silent_seconds = a_.silent_seconds;
    find_orphans();
    if (a_.processes_known && a_.ranks.empty()) {
      if (young_launcher()) return starting("the launcher runs, no rank yet");
      return judge_end(series_, a_, std::move(v_));
    }
    if (!a_.processes_known && end_is_told()) return judge_end(series_, a_, std::move(v_));
    if (!series_.other_host.name.empty()) return on_another_machine();
    if (a_.views < 2 || a_.span_seconds <= 0) return not_enough();
    v_.evidence = gather_evidence(series_, a_, t_);
    v_.allowed_seconds = allowed_silence(v_.phase, series_, t_);
    if (const double interval = untimed_interval(); v_.phase == Phase::kTrain && !std::isnan(interval))
      v_.allowed_seconds = std::max(v_.allowed_seconds, t_.stall_step_factor * interval);
    return alive();
  }

 private:
  StateVerdict done(RunState state, std::string cause) {
    v_.state = state;
    v_.cause = std::move(cause);
    if (state == RunState::kUnknownState && hidden()) {
      v_.cause += "; it is another user's: its log, files and input and output may not be read";
      v_.next = "sudo eaglet doctor " + target() + ", or name its log: eaglet doctor LOG";
    }
    if (state != RunState::kStalled && state != RunState::kDead)
      v_.silence = explain_silence(series_, a_, v_.phase, t_);
    return std::move(v_);
  }
  StateVerdict starting(std::string cause) {
    v_.next = "eaglet wait " + target() + " --until first-step --for 20m";
    return done(RunState::kStarting, std::move(cause));
  }
  std::string target() const {
    if (!a_.ranks.empty()) return std::to_string(a_.ranks.front().pid);
    return series_.log_path.empty() ? series_.name : series_.log_path;
  }

  /// Alive, but nothing that it has open could be read.
  bool hidden() const {
    const auto& processes = series_.views.back().processes;
    if (!series_.live || !processes || processes->empty() || series_.log_known) return false;
    return std::none_of(processes->begin(), processes->end(),
                        [](const ProcessView& process) { return process.files_known; });
  }

  /// Whether a file says that the run is over: true wherever it ran.
  bool end_is_told() const {
    if (series_.log.finished || series_.log.cause() != nullptr) return true;
    if (series_.other_host.name.empty()) return false;
    const auto& status = series_.views.back().status;
    if (status && (status->phase == "done" || status->phase == "interrupted" || status->phase == "failed"))
      return true;
    return series_.launch_record && series_.launch_record->value("reason", Json(nullptr)).is_string();
  }

  /// Nothing of it lives here, and its files name another machine: what is seen here proves no death.
  StateVerdict on_another_machine() {
    const OtherHost& other = series_.other_host;
    if (a_.views > 1) v_.evidence = gather_evidence(series_, a_, t_);
    v_.allowed_seconds = allowed_silence(v_.phase, series_, t_);
    const bool moves =
        (a_.steps_gained > 0 || a_.files_moved || a_.status_moved) && kinds(v_.evidence, true) >= 2;
    v_.evidence.push_back(
        {"host", fmt::format("{} names {}, this machine is {}", other.proof, other.name, other.here), false});
    v_.next = fmt::format("eaglet doctor --host {} {}", other.name,
                          !series_.log_path.empty()     ? series_.log_path
                          : !series_.output_dir.empty() ? series_.output_dir
                                                        : series_.name);
    v_.advice = "look where it runs; from here only its files are seen";
    const std::string where = fmt::format("{} says that it runs on {}", other.proof, other.name);
    if (moves) return done(RunState::kRunning, "its files move; " + where);
    return done(RunState::kUnknownState,
                fmt::format("wrong machine: {}, this is {}, where nothing of it lives", where, other.here));
  }

  bool young_launcher() const {
    if (a_.roles.launchers.empty() || !a_.roles.zombie_ranks.empty() || !v_.orphans.empty()) return false;
    for (const std::size_t i : a_.roles.launchers)
      if (!((*series_.views.back().processes)[i].elapsed_seconds < t_.start_seconds)) return false;
    return a_.last_step < 0 && series_.log.cause() == nullptr;
  }

  void find_orphans() {
    const RunView& last = series_.views.back();
    for (const std::size_t i : a_.roles.orphans) {
      const ProcessView& process = (*last.processes)[i];
      if (series_.live && just_left(process.pid)) continue;
      OrphanSeen orphan;
      orphan.pid = process.pid;
      orphan.command = process.command;
      if (last.device_processes)
        for (const DeviceProcess& held : *last.device_processes)
          if (held.pid == process.pid) {
            orphan.device = held.device;
            orphan.device_bytes = held.bytes;
          }
      v_.orphans.push_back(orphan);
    }
  }

  /// Loader workers look for their parent every few seconds and leave by themselves.
  bool just_left(std::int64_t pid) const {
    for (std::size_t v = series_.views.size(); v-- > 0;) {
      const RunView& view = series_.views[v];
      if (seconds_between(view, series_.views.back()) >= t_.orphan_age_seconds) return false;
      if (!view.processes) continue;
      const Roles roles = roles_of(view);
      const bool orphan = std::any_of(roles.orphans.begin(), roles.orphans.end(),
                                      [&](std::size_t i) { return (*view.processes)[i].pid == pid; });
      if (!orphan) return true;
    }
    return false;  // so since we look
  }

  StateVerdict not_enough() {
    v_.next = series_.live
                  ? "eaglet doctor " + target() + " --for 60s"
                  : "take a second view a minute or two later, then: eaglet doctor --snapshots FIRST SECOND";
    if (!a_.server.trouble.empty() && !a_.processes_known) {
      v_.next = "eaglet wait " + series_.name + " --until server-ready --for 10m";
      return done(RunState::kUnknownState, "it does not tell how it is: " + a_.server.trouble);
    }
    if (!a_.processes_known && series_.log_known) {
      v_.next = "eaglet doctor PID (find it with: pgrep -af train), or a second look at the log in a minute";
      const bool tells = series_.log.records > 0;  // as a tracker's file does, without a line of text
      if (series_.log.lines == 0 && !tells) return done(RunState::kUnknownState, "the log is empty");
      if (series_.log.recognised == 0 && !tells)
        return done(RunState::kUnknownState,
                    fmt::format("none of its {} lines is one that a trainer writes: is it a log?",
                                series_.log.lines));
      return done(RunState::kUnknownState,
                  "a log alone does not tell whether its run lives; what it says is judged below");
    }
    return done(RunState::kUnknownState,
                "not enough yet: one view shows no movement, a second one is needed");
  }

  StateVerdict alive() {
    const int progress = kinds(v_.evidence, true), stall = kinds(v_.evidence, false);
    const bool begun = a_.last_step >= 0 || series_.log.records > 0 || v_.phase == Phase::kTrain ||
                       v_.phase == Phase::kValidate;
    const bool strong = a_.steps_gained > 0 || a_.files_moved || a_.status_moved;
    const bool computing = has_kind(v_.evidence, "gpu", true);
    if (v_.phase == Phase::kServe) return serving(stall);
    const bool only_a_log = !a_.processes_known && !a_.devices_known && !series_.views.back().status;
    if (only_a_log && !strong) return not_enough();
    const double silent = std::isnan(v_.silent_seconds) ? a_.age_seconds : v_.silent_seconds;
    const bool over = silent > v_.allowed_seconds;
    if (has_kind(v_.evidence, "stopped", false) && (!strong || stopped_seconds() >= 5)) return stopped();
    if (has_kind(v_.evidence, "promise", true) && progress >= 2 && !over) return moving(begun);
    if (strong && progress >= 2) return moving(begun);
    if (stall >= 2 && !moves(progress)) return over ? stalled() : quiet(silent, begun);
    if (has_kind(v_.evidence, "promise", false)) return late(silent);
    if (progress >= 2) {
      if (computing || !over || !has_rhythm() || held_back()) return moving(begun);
      return late(silent);
    }
    if (progress == 1 && in_start_phase() && !over) return moving(begun);
    if (!std::isnan(v_.silent_seconds) && !over && begun) return quiet(silent, begun);
    if (over && has_rhythm() && !computing) return late(silent);
    if (progress >= 1)
      return done(RunState::kUnknownState, "working, but its progress is not visible from here");
    return done(RunState::kUnknownState, "not enough yet: nothing seen that proves progress or a stall");
  }

  /// How long every rank has been in state T, going back from the last view.
  double stopped_seconds() const {
    double seconds = 0;
    for (std::size_t v = series_.views.size(); v-- > 0;) {
      const auto& processes = series_.views[v].processes;
      if (!processes) return seconds;
      for (const ProcessView& process : *processes)
        for (const RankActivity& rank : a_.ranks)
          if (process.pid == rank.pid && process.state != 'T' && process.state != 't') return seconds;
      seconds = seconds_between(series_.views[v], series_.views.back());
    }
    return seconds;
  }

  /// Whether what speaks for progress contradicts a stall. A broken promise does not.
  bool moves(int progress) const { return progress > (has_kind(v_.evidence, "promise", true) ? 1 : 0); }
  bool in_start_phase() const {
    return v_.phase == Phase::kStart || v_.phase == Phase::kLoad || v_.phase == Phase::kCompile ||
           v_.phase == Phase::kSave;
  }
  /// Between two records of a log that prints no times: what it has printed in the run's life up to the
  /// newest one, its start included. NaN where times are printed, or nothing is known.
  double untimed_interval() const {
    const LogFacts& log = series_.log;
    if (log.step_times.size() >= 3 || log.records < 3 || std::isnan(a_.log_silent_seconds)) return kNotKnown;
    const double written = a_.age_seconds - a_.log_silent_seconds;
    return written > 0 ? written / static_cast<double>(log.records) : kNotKnown;
  }
  /// Three ticks make a rhythm that silence can be measured by.
  bool has_rhythm() const {
    return series_.log.step_times.size() >= 3 || !std::isnan(untimed_interval()) ||
           v_.phase == Phase::kCompile || v_.phase == Phase::kStart;
  }
  /// A log that grows in whole blocks is written late, not stopped.
  bool held_back() const {
    const double bytes = series_.views.back().log.bytes;
    const bool tracked = !std::isnan(series_.views.back().log.metric_time);
    return series_.log_known && !tracked && (bytes == 0 || std::fmod(bytes, 4096) == 0);
  }

  StateVerdict moving(bool begun) {
    const bool start = in_start_phase() && v_.phase != Phase::kSave;
    if (!begun || (start && a_.last_step < 0))
      return starting(fmt::format("not stalled: in its {} phase", phase_word(v_.phase)));
    v_.next = "eaglet watch " + target();
    std::string cause;
    if (a_.steps_gained > 0)
      cause = "steps advance";
    else if (has_kind(v_.evidence, "gpu", true))
      cause = "computing";
    else
      cause = fmt::format("working ({})", phase_word(v_.phase));
    StateVerdict verdict = done(RunState::kRunning, cause);
    if (!verdict.silence.empty())
      verdict.cause += "; " + verdict.silence.substr(0, verdict.silence.find_first_of(":("));
    while (!verdict.cause.empty() && verdict.cause.back() == ' ') verdict.cause.pop_back();
    return verdict;
  }

  /// A server without requests is well; one that has some must move.
  StateVerdict serving(int stall) {
    const ServerActivity& server = a_.server;
    v_.next = "eaglet watch " + target();
    if (has_kind(v_.evidence, "stopped", false) && stopped_seconds() >= 5) return stopped();
    if (server.moved) return done(RunState::kRunning, "serves: " + server_text(server));
    if (server.requests() <= 0) return done(RunState::kRunning, "ready: no request at the moment");
    const std::string what = fmt::format("{:.0f} requests, no token for {}", server.requests(),
                                         human_duration(server.still_seconds));
    // A long prompt is counted when it is done.
    if (has_kind(v_.evidence, "gpu", true)) return done(RunState::kRunning, what + ", the GPUs compute");
    if (server.still_seconds <= t_.stall_min_seconds) return done(RunState::kRunning, what);
    const std::int64_t pid = a_.ranks.empty() ? -1 : a_.ranks.front().pid;
    v_.next = stacks_command(pid) + ", then restart the server";
    v_.advice = "its engine hangs while its front end still answers: stacks of the engine's process first";
    return done(stall >= 2 ? RunState::kStalled : RunState::kLate, what);
  }

  StateVerdict quiet(double silent, bool begun) {
    if (begun && !std::isnan(v_.silent_seconds)) {
      v_.next = "eaglet watch " + target();
      return done(RunState::kRunning,
                  fmt::format("quiet for {}, {} allowed in this phase ({})", human_duration(silent),
                              human_duration(v_.allowed_seconds), phase_word(v_.phase)));
    }
    if (!begun)
      return starting(fmt::format("quiet for {}, {} allowed in its {} phase", human_duration(silent),
                                  human_duration(v_.allowed_seconds), phase_word(v_.phase)));
    return done(RunState::kUnknownState, "not enough yet: quiet, but not for longer than is allowed");
  }

  StateVerdict late(double silent) {
    v_.next = "eaglet doctor " + target() + " --for 60s";
    std::string cause =
        fmt::format("no progress for {}, {} allowed in its {} phase; still active", human_duration(silent),
                    human_duration(v_.allowed_seconds), phase_word(v_.phase));
    // Ranks that wait for another one spin, on CPUs too: the one that does not is the suspect.
    const RankActivity* odd = odd_rank(a_, t_);
    if (odd != nullptr) {
      v_.suspect_pid = odd->pid;
      v_.suspect_rank = odd->rank;
      cause += fmt::format("; suspect rank {} (pid {})", odd->rank, odd->pid);
    }
    const std::int64_t pid = odd != nullptr ? odd->pid : a_.ranks.empty() ? -1 : a_.ranks.front().pid;
    v_.advice = "look where the main thread is: py-spy dump --pid " +
                (pid < 0 ? std::string("PID") : std::to_string(pid));
    return done(RunState::kLate, cause);
  }

  StateVerdict stopped() {
    const RankActivity& rank = a_.ranks.front();
    v_.suspect_pid = rank.pid;
    v_.suspect_rank = rank.rank;
    v_.advice = "somebody stopped it (SIGSTOP, Ctrl-Z, a debugger); it goes on with SIGCONT";
    v_.next = fmt::format("kill -CONT {}", rank.pid);
    return done(RunState::kStalled, fmt::format("stopped by a signal (state T), pid {}", rank.pid));
  }

  StateVerdict stalled() {
    const RankActivity* odd = odd_rank(a_, t_);
    if (odd == nullptr && !a_.ranks.empty() && a_.ranks.size() == 1) odd = &a_.ranks.front();
    if (odd != nullptr) {
      v_.suspect_pid = odd->pid;
      v_.suspect_rank = odd->rank;
    }
    const std::int64_t pid = odd != nullptr ? odd->pid : a_.ranks.empty() ? -1 : a_.ranks.front().pid;
    std::string cause = stall_cause();
    if (!a_.gone_ranks.empty()) {
      v_.suspect_pid = a_.gone_ranks.front().pid;
      v_.suspect_rank = a_.gone_ranks.front().rank;
      cause = fmt::format("rank {} (pid {}) is gone; the others: {}", v_.suspect_rank, v_.suspect_pid, cause);
      v_.evidence.push_back({"ranks", cause, false});
    }
    if (odd != nullptr && a_.ranks.size() > 1)
      cause += fmt::format("; suspect rank {} (pid {})", odd->rank, odd->pid);
    if (!std::isnan(v_.silent_seconds))
      cause += fmt::format("; no progress for {}, {} allowed", human_duration(v_.silent_seconds),
                           human_duration(v_.allowed_seconds));
    v_.next = stacks_command(pid) + ", then " + restart_text();
    return done(RunState::kStalled, cause);
  }

  /// Whose stacks tell: of one that waits for data a loader's first.
  std::string stacks_command(std::int64_t pid) const {
    if (pid < 0) return "eaglet doctor PID (find it with: pgrep -af train)";
    const auto& processes = series_.views.back().processes;
    if (!spinning(a_, t_) && odd_rank(a_, t_) == nullptr && !a_.roles.workers.empty() && processes)
      return fmt::format("py-spy dump --pid {} (a loader), py-spy dump --pid {} (a rank)",
                         (*processes)[a_.roles.workers.front()].pid, pid);
    return fmt::format("py-spy dump --pid {} (or gdb -p {})", pid, pid);
  }

  /// From where, and what that costs: whoever restarts at night wants to know before.
  std::string restart_text() {
    if (const CheckpointSeen* newest = newest_whole_checkpoint(a_); newest != nullptr) {
      v_.resume_step = newest->step;
      v_.resume_path = newest->path;
      if (a_.last_step >= newest->step) v_.lost_steps = a_.last_step - newest->step;
      return fmt::format("restart from {} ({} steps lost)", newest->path,
                         std::max<std::int64_t>(0, v_.lost_steps));
    }
    if (series_.views.back().files) return "restart (no checkpoint is among its files)";
    return "restart from the last checkpoint";
  }

  std::string stall_cause() {
    if (spinning(a_, t_)) {
      v_.advice =
          "stacks of the odd rank first: in a collective the healthy ranks spin, the sick one does something "
          "else";
      return "waiting in a collective";
    }
    bool disk = !a_.ranks.empty();
    for (const RankActivity& rank : a_.ranks) disk = disk && rank.state == 'D';
    if (disk) {
      v_.advice = "the storage does not answer: check the mount that holds the data and the checkpoints";
      return "waiting for storage" +
             (a_.ranks.front().wait_place.empty() ? "" : " in " + a_.ranks.front().wait_place);
    }
    if (!a_.roles.workers.empty()) {
      v_.advice = "the loaders do nothing either: look at their stacks and at the storage they read from";
      return "waiting for data";
    }
    const std::string& place = a_.ranks.empty() ? std::string() : a_.ranks.front().wait_place;
    if (contains(place, "futex")) return "waiting for a thread (futex)";
    if (contains(place, "pipe") || contains(place, "poll") || contains(place, "sock"))
      return "waiting for a worker or a socket (" + place + ")";
    if (contains(place, "nanosleep") || contains(place, "hrtimer")) return "sleeping";
    return place.empty() || place == "0" ? "nothing moves" : "nothing moves, the main thread is in " + place;
  }

  const RunSeries& series_;
  const Activity& a_;
  const Thresholds& t_;
  StateVerdict v_;
};

}  // namespace

const char* state_word(RunState state) {
  constexpr const char* words[] = {"RUNNING", "STARTING", "FINISHED", "LATE", "STALLED", "DEAD", "UNKNOWN"};
  return words[static_cast<int>(state)];
}

StateVerdict judge_state(const RunSeries& series, const Activity& activity, const Thresholds& thresholds) {
  if (series.views.empty()) {
    StateVerdict verdict;
    verdict.cause = "nothing was seen";
    return verdict;
  }
  return StateRule(series, activity, thresholds).judge();
}

}  // namespace eaglet::monitor
