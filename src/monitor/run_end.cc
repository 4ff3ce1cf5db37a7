#include "monitor/run_end.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "monitor/desync.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

class EndRule {
 public:
  EndRule(const RunSeries& series, const Activity& activity, StateVerdict so_far)
      : series_(series), a_(activity), v_(std::move(so_far)) {}

  StateVerdict judge() {
    const CheckpointSeen* newest = newest_whole_checkpoint(a_);
    if (newest != nullptr && newest != &a_.checkpoints.back())
      note("files",
           a_.checkpoints.back().path + " is smaller than those before: cut off while it was written");
    const LogFacts& log = series_.log;
    v_.phase = Phase::kDone;
    if (a_.processes_known) note("processes", "no rank is alive");
    if (const OtherHost& other = series_.other_host; !other.name.empty())
      note("host", fmt::format("it ran on {}, as {} says", other.name, other.proof));
    const bool reached = log.total_steps > 0 && log.last_step >= log.total_steps;
    const auto& status = series_.views.back().status;
    const bool says_done = status && status->phase == "done";
    if (says_done) v_.evidence.push_back({"status", "its status file says: done", true});
    if (ended_well()) v_.evidence.push_back({"exit", "its launcher recorded " + exit_reason(), true});
    if (log.finished || ended_well() || says_done ||
        (reached && newest != nullptr && newest->step >= log.last_step))
      return finished(newest);
    if (newest != nullptr) {
      v_.resume_step = newest->step;
      v_.resume_path = newest->path;
      if (a_.last_step >= newest->step) v_.lost_steps = a_.last_step - newest->step;
    }
    return dead();
  }

 private:
  void note(const char* kind, std::string text) { v_.evidence.push_back({kind, std::move(text), false}); }

  StateVerdict done(RunState state, std::string cause) {
    v_.state = state;
    v_.cause = std::move(cause);
    return std::move(v_);
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
    std::string cause = cause_of_death();
    note_what_is_left();
    if (!v_.orphans.empty()) cause += "; " + orphans_text();
    if (v_.resume_step >= 0) {
      cause += fmt::format("; resume from {}", v_.resume_step);
      if (v_.lost_steps >= 0)
        cause += fmt::format(", {} step{} lost", v_.lost_steps, v_.lost_steps == 1 ? "" : "s");
    } else if (series_.views.back().files && a_.last_step > 0) {
      cause += "; no checkpoint is among its files";
    }
    v_.next = dead_next();
    return done(RunState::kDead, cause);
  }

  /// The first of these that says anything: the log's error, the run's own status, the kernel, its launcher.
  std::string cause_of_death() {
    const RunView& last = series_.views.back();
    const std::string exit = exit_reason();
    if (!exit.empty()) note("exit", "its launcher recorded: " + exit);
    if (const LogError* error = series_.log.cause()) return logged_cause(*error);
    if (last.status && (last.status->phase == "interrupted" || last.status->phase == "failed")) {
      note("status", "its own status says: " + last.status->phase);
      return "its own status says: " + last.status->phase;
    }
    if (series_.log_known && series_.log.interrupted) return "interrupted: " + series_.log.finished_line;
    if (const KernelLine* line = kernel_killed(); line != nullptr) {
      note("kernel", "the kernel's log: " + line->text);
      v_.advice = "fewer workers, smaller prefetch, or more memory";
      return fmt::format("killed by the kernel for memory (pid {}, {})", line->pid, line->name);
    }
    if (last.host.oom_kills > series_.views.front().host.oom_kills) {
      note("memory", "the container's count of memory kills rose");
      v_.advice = "fewer workers, smaller prefetch, or a larger memory limit";
      return "killed by the kernel for memory";
    }
    if (!exit.empty()) {
      if (contains(exit, "signal 9"))
        v_.advice = "killed from outside: dmesg -T | grep -i 'killed process' tells whether memory ran out";
      return exit + ", without a message in the log";
    }
    if (series_.log_known) note("log", "the log just ends: no error, no end mark");
    v_.advice =
        "look for the OOM killer: dmesg -T | grep -i -E 'killed process|xid'; or the scheduler's record";
    return "gone: ended without an error message, perhaps killed";
  }

  std::string logged_cause(const LogError& error) {
    std::string cause = fmt::format("{}{}: {}", error.kind == "child_exit" ? "a rank failed" : "failed",
                                    error.rank.empty() ? "" : " on rank " + error.rank, error.text);
    note("log", "the log ends with: " + error.text);
    v_.advice = advice_for(error);
    if (const std::string behind = rank_behind(series_.log.errors); !behind.empty()) {
      cause += "; " + behind;
      note("ranks", behind);
    }
    return cause;
  }

  void note_what_is_left() {
    if (!a_.roles.zombie_ranks.empty()) {
      const ProcessView& zombie = (*series_.views.back().processes)[a_.roles.zombie_ranks.front()];
      note("processes",
           fmt::format("pid {} is defunct, its parent {} has not collected it", zombie.pid, zombie.parent));
    }
    for (const std::size_t i : a_.roles.launchers)
      note("processes",
           fmt::format("the launcher (pid {}) is still there", (*series_.views.back().processes)[i].pid));
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
      note("orphans", fmt::format("orphan {} ({}){}", orphan.pid, orphan.command,
                                  std::isnan(orphan.device_bytes)
                                      ? ""
                                      : fmt::format(" holds {:.1f} GiB on GPU {}",
                                                    orphan.device_bytes / (1 << 30), orphan.device)));
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
    return series_.log_path.empty() ? "eaglet orphans" : "tail -50 " + series_.log_path;
  }

  const RunSeries& series_;
  const Activity& a_;
  StateVerdict v_;
};

}  // namespace

std::string advice_for(const LogError& error) {
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

StateVerdict judge_end(const RunSeries& series, const Activity& activity, StateVerdict so_far) {
  return EndRule(series, activity, std::move(so_far)).judge();
}

}  // namespace eaglet::monitor
