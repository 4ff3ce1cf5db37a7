#include "monitor/run_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/desync.h"
#include "monitor/evidence.h"
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
      return gone();
    }
    if (!a_.processes_known && (series_.log.finished || series_.log.cause() != nullptr)) return gone();
    if (a_.views < 2 || a_.span_seconds <= 0) return not_enough();
    v_.evidence = gather_evidence(series_, a_, t_);
    v_.allowed_seconds = allowed_silence(v_.phase, series_, t_);
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
    if (!a_.processes_known && series_.log_known) {
      v_.next = "eaglet doctor PID (find it with: pgrep -af train), or a second look at the log in a minute";
      if (series_.log.lines == 0) return done(RunState::kUnknownState, "the log is empty");
      if (series_.log.recognised == 0)
        return done(RunState::kUnknownState,
                    fmt::format("none of its {} lines is one that a trainer writes: is it a log?",
                                series_.log.lines));
      return done(RunState::kUnknownState,
                  "a log alone does not tell whether its run lives; what it says is judged below");
    }
    return done(RunState::kUnknownState,
                "not enough yet: one view shows no movement, a second one is needed");
  }

  // ---- the run is gone
  // -------------------------------------------------------------------------------------

  StateVerdict gone() {
    const CheckpointSeen* newest = newest_whole_checkpoint(a_);
    if (newest != nullptr && newest != &a_.checkpoints.back())
      v_.evidence.push_back(
          {"files",
           a_.checkpoints.back().path + " is smaller than those before: cut off while it was written",
           false});
    const LogFacts& log = series_.log;
    v_.phase = Phase::kDone;
    if (a_.processes_known) v_.evidence.push_back({"processes", "no rank is alive", false});
    const bool reached = log.total_steps > 0 && log.last_step >= log.total_steps;
    const auto& status = series_.views.back().status;
    if (status && status->phase == "done")
      v_.evidence.push_back({"status", "its status file says: done", true});
    if (ended_well()) v_.evidence.push_back({"exit", "its launcher recorded " + exit_reason(), true});
    if (log.finished || ended_well() || (status && status->phase == "done") ||
        (reached && newest != nullptr && newest->step >= log.last_step))
      return finished(newest);
    if (newest != nullptr) {
      v_.resume_step = newest->step;
      v_.resume_path = newest->path;
      if (a_.last_step >= newest->step) v_.lost_steps = a_.last_step - newest->step;
    }
    return dead();
  }

  StateVerdict finished(const CheckpointSeen* newest) {
    if (!series_.log.finished_line.empty())
      v_.evidence.push_back({"log", "the log says: " + series_.log.finished_line, true});
    if (newest != nullptr)
      v_.evidence.push_back(
          {"files", fmt::format("final checkpoint {} (step {})", newest->path, newest->step), true});
    v_.next = newest == nullptr ? "eaglet inspect CHECKPOINT --verify"
                                : "eaglet inspect " + newest->path + " --verify";
    return done(RunState::kFinished, newest == nullptr ? "the log says it finished"
                                                       : "finished, final checkpoint " + newest->path);
  }

  /// What `eaglet launch` wrote when the program ended.
  std::string exit_reason() const {
    if (!series_.launch_record || !series_.launch_record->is_object()) return {};
    const Json reason = series_.launch_record->value("reason", Json(nullptr));
    return reason.is_string() ? reason.get<std::string>() : std::string();
  }
  bool ended_well() const { return exit_reason() == "exit code 0"; }

  StateVerdict dead() {
    std::string cause;
    const std::string exit = exit_reason();
    if (!exit.empty()) v_.evidence.push_back({"exit", "its launcher recorded: " + exit, false});
    if (const LogError* error = series_.log.cause()) {
      cause = fmt::format("{}{}: {}", error->kind == "child_exit" ? "a rank failed" : "failed",
                          error->rank.empty() ? "" : " on rank " + error->rank, error->text);
      v_.evidence.push_back({"log", "the log ends with: " + error->text, false});
      v_.advice = advice_for(*error);
      if (const std::string behind = rank_behind(series_.log.errors); !behind.empty()) {
        cause += "; " + behind;
        v_.evidence.push_back({"ranks", behind, false});
      }
    } else if (series_.views.back().status && (series_.views.back().status->phase == "interrupted" ||
                                               series_.views.back().status->phase == "failed")) {
      cause = "its own status says: " + series_.views.back().status->phase;
      v_.evidence.push_back({"status", cause, false});
    } else if (series_.log_known && series_.log.interrupted) {
      cause = "interrupted: " + series_.log.finished_line;
    } else if (const KernelLine* line = kernel_killed(); line != nullptr) {
      cause = fmt::format("killed by the kernel for memory (pid {}, {})", line->pid, line->name);
      v_.evidence.push_back({"kernel", "the kernel's log: " + line->text, false});
      v_.advice = "fewer workers, smaller prefetch, or more memory";
    } else if (series_.views.back().host.oom_kills > series_.views.front().host.oom_kills) {
      cause = "killed by the kernel for memory";
      v_.evidence.push_back({"memory", "the container's count of memory kills rose", false});
      v_.advice = "fewer workers, smaller prefetch, or a larger memory limit";
    } else if (!exit.empty()) {
      cause = exit + ", without a message in the log";
      if (contains(exit, "signal 9"))
        v_.advice = "killed from outside: dmesg -T | grep -i 'killed process' tells whether memory ran out";
    } else {
      cause = "gone: ended without an error message, perhaps killed";
      if (series_.log_known)
        v_.evidence.push_back({"log", "the log just ends: no error, no end mark", false});
      v_.advice =
          "look for the OOM killer: dmesg -T | grep -i -E 'killed process|xid'; or the scheduler's record";
    }
    if (!a_.roles.zombie_ranks.empty()) {
      const ProcessView& zombie = (*series_.views.back().processes)[a_.roles.zombie_ranks.front()];
      v_.evidence.push_back(
          {"processes",
           fmt::format("pid {} is defunct, its parent {} has not collected it", zombie.pid, zombie.parent),
           false});
    }
    for (const std::size_t i : a_.roles.launchers)
      v_.evidence.push_back(
          {"processes",
           fmt::format("the launcher (pid {}) is still there", (*series_.views.back().processes)[i].pid),
           false});
    if (!v_.orphans.empty()) cause += "; " + orphans_text();
    if (v_.resume_step >= 0) {
      cause += fmt::format("; resume from {}", v_.resume_step);
      if (v_.lost_steps >= 0)
        cause += fmt::format(", {} step{} lost", v_.lost_steps, v_.lost_steps == 1 ? "" : "s");
    }
    v_.next = dead_next();
    return done(RunState::kDead, cause);
  }

  /// The kernel's word that a process of this run was killed for memory.
  const KernelLine* kernel_killed() const {
    if (!series_.kernel) return nullptr;
    for (const KernelLine& line : *series_.kernel)
      if (line.kind == KernelLine::Kind::kKilledForMemory)
        for (const RunView& view : series_.views)
          if (view.processes)
            for (const ProcessView& process : *view.processes)
              if (process.pid == line.pid) return &line;
    return nullptr;
  }

  std::string orphans_text() {
    std::vector<std::int64_t> pids;
    double bytes = 0;
    for (const OrphanSeen& orphan : v_.orphans) {
      pids.push_back(orphan.pid);
      if (!std::isnan(orphan.device_bytes)) bytes += orphan.device_bytes;
      v_.evidence.push_back({"orphans",
                             fmt::format("orphan {} ({}){}", orphan.pid, orphan.command,
                                         std::isnan(orphan.device_bytes)
                                             ? ""
                                             : fmt::format(" holds {:.1f} GiB on GPU {}",
                                                           orphan.device_bytes / (1 << 30), orphan.device)),
                             false});
    }
    std::string text = fmt::format("orphan{} {} left", pids.size() == 1 ? "" : "s", fmt::join(pids, " and "));
    if (bytes > 0) text += fmt::format(", holding {:.1f} GiB of GPU memory", bytes / (1 << 30));
    return text;
  }

  std::string dead_next() const {
    if (!v_.orphans.empty()) {
      std::string pids;
      for (const OrphanSeen& orphan : v_.orphans) pids += " " + std::to_string(orphan.pid);
      return "eaglet orphans (proof), then end them by id: kill" + pids;
    }
    if (v_.resume_step >= 0) return "start the same command again; it resumes from " + v_.resume_path;
    return series_.log_path.empty() ? "" : "tail -50 " + series_.log_path;
  }

  static std::string advice_for(const LogError& error) {
    if (error.kind == "out_of_memory")
      return "lower max_seq_len or the batch, or chunk the loss over the vocabulary";
    if (error.kind == "collective_timeout")
      return "find the rank that is behind (lowest SeqNum); its own log says why";
    if (error.kind == "bus_error")
      return "shared memory is full: enlarge /dev/shm (--shm-size) or use fewer workers";
    if (error.kind == "disk_full") return "free space where checkpoints go, then resume";
    if (error.kind == "port_taken")
      return "another process listens there (eaglet orphans; ss -ltnp): end it, or set another MASTER_PORT";
    if (error.kind == "device_error") return "look at dmesg for Xid; run once with CUDA_LAUNCH_BLOCKING=1";
    if (contains(error.text, "-9") || error.kind == "killed")
      return "killed from outside: dmesg -T | grep -i 'killed process' tells whether memory ran out";
    return {};
  }

  // ---- the run is there
  // ------------------------------------------------------------------------------------

  StateVerdict alive() {
    const int progress = kinds(v_.evidence, true), stall = kinds(v_.evidence, false);
    const bool begun = a_.last_step >= 0 || series_.log.records > 0 || v_.phase == Phase::kTrain ||
                       v_.phase == Phase::kValidate;
    const bool strong = a_.steps_gained > 0 || a_.files_moved || a_.status_moved;
    const bool computing = has_kind(v_.evidence, "gpu", true);
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
  /// Three ticks make a rhythm that silence can be measured by.
  bool has_rhythm() const {
    return series_.log.step_times.size() >= 3 || v_.phase == Phase::kCompile || v_.phase == Phase::kStart;
  }
  /// A log that grows in whole blocks is written late, not stopped.
  bool held_back() const {
    const double bytes = series_.views.back().log.bytes;
    return series_.log_known && (bytes == 0 || std::fmod(bytes, 4096) == 0);
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
    v_.advice = "look where the main thread is: py-spy dump --pid " +
                (a_.ranks.empty() ? std::string("PID") : std::to_string(a_.ranks.front().pid));
    return done(RunState::kLate, fmt::format("no progress for {}, {} allowed in its {} phase; still active",
                                             human_duration(silent), human_duration(v_.allowed_seconds),
                                             phase_word(v_.phase)));
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
    if (!std::isnan(v_.silent_seconds)) cause += "; no progress for " + human_duration(v_.silent_seconds);
    v_.next =
        fmt::format("py-spy dump --pid {} (or gdb -p {}), then restart from the last checkpoint", pid, pid);
    return done(RunState::kStalled, cause);
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
