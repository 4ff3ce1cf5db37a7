#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "monitor/evidence.h"
#include "monitor/judges.h"
#include "monitor/run_end.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

Level level_of(RunState state) {
  switch (state) {
    case RunState::kRunning:
    case RunState::kStarting:
    case RunState::kFinished:
      return Level::kOk;
    case RunState::kLate:
      return Level::kWarn;
    case RunState::kStalled:
    case RunState::kDead:
      return Level::kCrit;
    case RunState::kUnknownState:
      break;
  }
  return Level::kUnknown;
}

Judgement state_judgement(const Case& c) {
  Judgement j = process_judgement("state", level_of(c.state.state), c.state.cause);
  j.window_seconds = c.activity.span_seconds;
  j.value = c.state.silent_seconds;
  j.unit = "s since the last progress";
  if (!std::isnan(c.state.allowed_seconds))
    j.threshold = fmt::format("{} allowed in phase {}", human_duration(c.state.allowed_seconds),
                              phase_word(c.state.phase));
  j.advice = c.state.advice;
  j.next = c.state.next;
  return j;
}

double sum_of(const Case& c, double ProcessView::*field) {
  double sum = 0;
  for (const auto* list : {&c.activity.roles.ranks, &c.activity.roles.workers})
    for (const std::size_t i : *list) {
      const double value = (*c.series.views.back().processes)[i].*field;
      if (!std::isnan(value)) sum += value;
    }
  return sum;
}

void add_cpu(const Case& c, Judgements* all) {
  if (std::isnan(c.activity.tree_cores) || c.activity.span_seconds <= 0) return;
  const std::size_t processes = c.activity.roles.ranks.size() + c.activity.roles.workers.size();
  std::string text = fmt::format("{:.1f} cores over {} process{}", c.activity.tree_cores, processes,
                                 processes == 1 ? "" : "es");
  if (const double bytes = sum_of(c, &ProcessView::rss_bytes); bytes > 0) text += ", " + human_bytes(bytes);
  Judgement j = process_judgement("cpu", Level::kOk, text);
  j.value = c.activity.tree_cores;
  j.unit = "cores";
  j.window_seconds = c.activity.span_seconds;
  j.threshold = fmt::format("stall evidence < {}", c.thresholds.idle_cores);
  all->push_back(j);
}

/// Growth of a counter of seconds of the ranks, as a share of their time in the window.
double share_of_ranks(const Case& c, double ProcessView::*seconds) {
  if (c.activity.views < 2 || c.activity.span_seconds <= 0 ||
      !c.series.views[c.activity.first_view].processes)
    return kNotKnown;
  double grown = 0, known = 0;
  for (const std::size_t i : c.activity.roles.ranks) {
    const ProcessView& last = (*c.series.views.back().processes)[i];
    for (const ProcessView& first : *c.series.views[c.activity.first_view].processes)
      if (first.pid == last.pid && !std::isnan(first.*seconds) && !std::isnan(last.*seconds)) {
        grown += last.*seconds - first.*seconds;
        ++known;
      }
  }
  return known == 0 ? kNotKnown : grown / (known * c.activity.span_seconds);
}

/// Runnable but not running: too many threads, or a quota.
void add_run_wait(const Case& c, Judgements* all) {
  const double share = share_of_ranks(c, &ProcessView::run_wait_seconds);  // of the main threads' time
  if (std::isnan(share)) return;
  Judgement j =
      process_judgement("run_wait", share > c.thresholds.run_wait_warn ? Level::kWarn : Level::kOk,
                        fmt::format("runnable but waiting for a core {:.0f} % of the time", 100 * share));
  j.value = share;
  j.unit = "share";
  j.window_seconds = c.activity.span_seconds;
  j.threshold = fmt::format("warn > {}", c.thresholds.run_wait_warn);
  if (j.level == Level::kWarn)
    j.advice = "more threads than cores: set OMP_NUM_THREADS, or something else uses the machine";
  all->push_back(j);
}

/// Told where it is counted at all (the kernel's delay accounting): how much of their time ranks wait for
/// disks.
void add_disk_wait(const Case& c, Judgements* all) {
  const double share = share_of_ranks(c, &ProcessView::disk_wait_seconds);
  if (!(share > 0)) return;
  Judgement j = process_judgement(
      "disk_wait", Level::kOk, fmt::format("waits for disks {:.0f} % of the time of each rank", 100 * share));
  j.value = share;
  j.unit = "share";
  j.window_seconds = c.activity.span_seconds;
  j.threshold = "none: threads add up; mapped files count, files over a network do not";
  all->push_back(std::move(j));
}

/// How long a process has been defunct, going back from the last view. A parent needs a moment to collect it.
double defunct_seconds(const RunSeries& series, std::int64_t pid) {
  double seconds = 0;
  for (std::size_t v = series.views.size(); v-- > 0;) {
    if (!series.views[v].processes) return seconds;
    bool defunct = false;
    for (const ProcessView& process : *series.views[v].processes)
      defunct = defunct || (process.pid == pid && process.state == 'Z');
    if (!defunct) return seconds;
    seconds = seconds_between(series.views[v], series.views.back());
  }
  return seconds;
}

void add_states(const Case& c, Judgements* all) {
  for (const std::size_t i : c.activity.roles.zombie_ranks) {
    const ProcessView& process = (*c.series.views.back().processes)[i];
    if (c.series.live && defunct_seconds(c.series, process.pid) < c.thresholds.defunct_seconds) continue;
    Judgement j = process_judgement(
        "defunct", Level::kCrit,
        fmt::format("pid {} is defunct: parent {} has not collected it", process.pid, process.parent));
    j.next = fmt::format("ps -fp {}", process.parent);
    all->push_back(j);
  }
  // Storage that does not answer: D in five views over forty seconds, and nothing comes in or goes out.
  const bool flows = c.activity.read_bytes_per_second > 1e6 || c.activity.write_bytes_per_second > 1e6 ||
                     c.activity.memory_change_bytes > c.thresholds.memory_change_bytes;
  if (flows) return;
  if (c.activity.views < 5 || c.activity.span_seconds < 40) return;
  for (const RankActivity& rank : c.activity.ranks) {
    bool always = rank.state == 'D';
    for (std::size_t v = c.activity.first_view; v < c.series.views.size(); ++v)
      if (c.series.views[v].processes)
        for (const ProcessView& process : *c.series.views[v].processes)
          if (process.pid == rank.pid) always = always && process.state == 'D';
    if (!always) continue;
    Judgement j = process_judgement("storage", Level::kWarn,
                                    fmt::format("pid {} waits for storage in every view{}", rank.pid,
                                                rank.wait_place.empty() ? "" : " in " + rank.wait_place));
    j.advice = "check the mount it reads from";
    if (const DataFrom& from = c.series.data_from; !from.folder.empty())
      j.advice +=
          fmt::format(": {}{}", from.folder, from.filesystem.empty() ? "" : " (" + from.filesystem + ")");
    all->push_back(j);
  }
}

/// The others wait for it in the next collective and will for long: their own time-out is ten minutes.
void add_gone_ranks(const Case& c, Judgements* all) {
  if (c.series.log.finished || c.state.state == RunState::kDead || c.state.state == RunState::kFinished)
    return;
  for (const GoneRank& gone : c.activity.gone_ranks) {
    if (gone.seconds < c.thresholds.rank_gone_seconds) continue;
    Judgement j =
        process_judgement("rank_gone", Level::kCrit,
                          fmt::format("rank {} (pid {}) has been gone for {}, {} others go on", gone.rank,
                                      gone.pid, human_duration(gone.seconds), c.activity.ranks.size()));
    j.value = gone.seconds;
    j.unit = "s";
    j.threshold = fmt::format("crit after {}", human_duration(c.thresholds.rank_gone_seconds));
    j.advice =
        "end the others and start again from the last checkpoint; why it ended stands in its own log, or in "
        "dmesg";
    j.next = "eaglet orphans";
    all->push_back(std::move(j));
  }
}

/// A run that waits for a port in other hands never makes its first step.
void add_port(const Case& c, Judgements* all) {
  const PortSeen& port = c.series.port;
  const bool begun = c.activity.last_step >= 0 || c.series.log.records > 0;
  if (port.port < 0 || begun || c.state.state == RunState::kFinished) return;
  Judgement j = process_judgement("port", port.taken ? Level::kCrit : Level::kOk,
                                  fmt::format("port {} is the run's own, or free", port.port));
  j.value = static_cast<double>(port.port);
  j.threshold = "crit: another program listens on MASTER_PORT before the first step";
  if (port.taken) {
    j.reason = fmt::format("port {} (MASTER_PORT) is held by ", port.port);
    if (port.pid < 0)
      j.reason += fmt::format("a process of user {}", port.user);
    else
      j.reason += fmt::format("pid {} ({}{}), not of this run", port.pid, port.name,
                              port.run_id.empty() ? "" : ", run " + port.run_id);
    j.advice = "end that process if it is left over, or start with another MASTER_PORT";
    j.next = port.pid < 0 ? fmt::format("ss -ltnp 'sport = :{}'", port.port)
                          : fmt::format("ps -fp {}; eaglet orphans", port.pid);
  }
  all->push_back(std::move(j));
}

/// An error is the log's last word and the run lives on: a rank that failed while the others wait for it, or
/// a program whose other threads do not end. What is printed after an exception shows that it was survived.
void add_log_error(const Case& c, Judgements* all) {
  const LogError* error = c.series.log_known ? c.series.log.cause() : nullptr;
  if (error == nullptr || c.activity.ranks.empty() || contains_any(error->kind, {"signal", "ranks_differ"}))
    return;
  if (c.state.state == RunState::kDead || c.state.state == RunState::kFinished) return;
  const bool goes_on = c.activity.silent_seconds < c.activity.log_silent_seconds - 1;  // a checkpoint since
  const bool exception = error->kind == "exception";
  const bool survived = exception && static_cast<std::int64_t>(c.series.log.lines) > error->line + 2;
  if (goes_on || survived || !(c.activity.log_silent_seconds >= c.thresholds.error_seconds)) return;
  Judgement j =
      process_judgement("log_error", exception ? Level::kWarn : Level::kCrit,
                        fmt::format("the log ends with an error {} ago, and the run lives on{}: {:.200}",
                                    human_duration(c.activity.log_silent_seconds),
                                    error->rank.empty() ? "" : " (rank " + error->rank + ")", error->text));
  j.value = c.activity.log_silent_seconds;
  j.unit = "s";
  j.threshold = fmt::format("its last word for {}; crit: not an exception alone",
                            human_duration(c.thresholds.error_seconds));
  j.advice = advice_for(*error);
  if (j.advice.empty()) j.advice = "end what is left of the run and start again from the last checkpoint";
  all->push_back(std::move(j));
}

void add_log(const Case& c, Judgements* all) {
  if (!c.state.silence.empty()) {
    Judgement j = process_judgement("log", Level::kOk, c.state.silence);
    j.value = c.activity.log_silent_seconds;
    j.unit = "s";
    j.advice = "next start: PYTHONUNBUFFERED=1, or eaglet launch -- COMMAND";
    all->push_back(j);
  } else if (!c.series.log_known) {
    all->push_back(process_judgement("log", Level::kUnknown, "no log found"));
  }
  if (c.series.log_deleted) {
    Judgement j = process_judgement(
        "log_deleted", Level::kWarn,
        "the log was removed or rotated while open: what the run prints from now on is lost");
    j.advice = "copy it while the run lives; rotate by copying and truncating";
    if (!c.activity.ranks.empty())
      j.next = fmt::format("cat /proc/{}/fd/1 > saved.log", c.activity.ranks.front().pid);
    all->push_back(j);
  }
  if (!c.series.log_read_note.empty())
    all->push_back(process_judgement("log_size", Level::kOk, c.series.log_read_note));
}

void add_orphans(const Case& c, Judgements* all) {
  for (const OrphanSeen& orphan : c.state.orphans) {
    std::string text =
        fmt::format("pid {} ({}) is left over, its parent is gone", orphan.pid, orphan.command);
    if (!std::isnan(orphan.device_bytes))
      text += fmt::format("; it holds {:.1f} GiB on GPU {}", orphan.device_bytes / (1 << 30), orphan.device);
    Judgement j = process_judgement("orphan", Level::kWarn, text);
    j.next = "eaglet orphans";
    all->push_back(j);
  }
}

}  // namespace

Judgements judge_process(const Case& c) {
  Judgements all = {state_judgement(c)};
  add_cpu(c, &all);
  add_run_wait(c, &all);
  add_disk_wait(c, &all);
  add_states(c, &all);
  add_gone_ranks(c, &all);
  add_port(c, &all);
  add_log_error(c, &all);
  add_log(c, &all);
  add_orphans(c, &all);
  return all;
}

}  // namespace eaglet::monitor
