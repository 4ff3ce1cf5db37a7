#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "monitor/evidence.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

bool unbuffered(const RunSeries& series) {
  const auto it = series.environment.find("PYTHONUNBUFFERED");
  if (it != series.environment.end() && !it->second.empty() && it->second != "0") return true;
  if (series.views.empty() || !series.views.back().processes) return false;
  for (const ProcessView& process : *series.views.back().processes)
    if (contains(process.command, "python -u ") || contains(process.command, "python3 -u ")) return true;
  return false;
}

/// Growth of what rank 0 handed to the kernel; NaN when not known.
double written_by_rank0(const RunSeries& series, const Activity& activity) {
  if (activity.ranks.empty() || series.views.size() < 2) return kNotKnown;
  const auto written = [&](const RunView& view) {
    if (view.processes)
      for (const ProcessView& process : *view.processes)
        if (process.pid == activity.ranks.front().pid) return process.write_chars;
    return kNotKnown;
  };
  return written(series.views.back()) - written(series.views[activity.first_view]);
}

std::string buffered_text(const RunSeries& series, double written, double silent) {
  std::string text = std::isnan(silent) ? "log silent" : "log silent " + human_duration(silent);
  if (written == 0) {
    text += ": output held in the program's buffer (it works, but handed nothing to the kernel";
    text += series.environment.empty() ? ")" : "; PYTHONUNBUFFERED is not set)";
  } else {
    text += ", probably buffered: the run works, and Python writes to a file in blocks of 8 KiB";
  }
  return text + " - not a fault; do not kill it, the unwritten tail would be lost";
}

/// ", first step expected by 14:32:10Z", as the phase allows.
std::string expected_by(const RunSeries& series, const Activity& activity, Phase phase,
                        const Thresholds& thresholds) {
  const double silent = std::isnan(activity.silent_seconds) ? activity.age_seconds : activity.silent_seconds;
  const double until = series.views.back().wall + allowed_silence(phase, series, thresholds) - silent;
  if (std::isnan(until) || until < series.views.back().wall || series.log.records > 0) return {};
  return ", first step expected by " + rfc3339_utc(until).substr(11, 8) + "Z";
}

}  // namespace

std::string explain_silence(const RunSeries& series, const Activity& activity, Phase phase,
                            const Thresholds& thresholds) {
  if (phase == Phase::kServe) return {};  // who asks nothing hears nothing
  if (!series.log_known || series.views.empty() || activity.views < 2 || activity.ranks.empty()) return {};
  if (activity.log_bytes_gained > 0 || series.log_path.empty()) return {};
  const double silent = activity.log_silent_seconds;
  if (!std::isnan(silent) && silent < thresholds.stall_min_seconds) return {};
  const bool works = !spinning(activity, thresholds) && (activity.above_idle >= thresholds.spin_r ||
                                                         activity.tree_cores >= thresholds.idle_cores);
  if (!works) return {};
  const std::string since = std::isnan(silent) ? "" : " " + human_duration(silent);
  if (phase == Phase::kLoad || phase == Phase::kCompile || phase == Phase::kStart)
    return fmt::format("log silent{}: nothing to say yet, the run is in its {} phase{}", since,
                       phase_word(phase), expected_by(series, activity, phase, thresholds));
  if (series.log.lines > 0 && !series.log.bar_seen && series.log.records == 0 &&
      series.log.phase == LogPhase::kTrain && (activity.files_moved || !activity.checkpoints.empty()))
    return fmt::format(
        "log silent{}: the bar is drawn only on terminals (the log ends with the start of an epoch, yet "
        "checkpoints or event files move)",
        since);
  if (series.log.lines > 0 && series.log.warning_seen && !series.log.info_seen && series.log.records == 0)
    return fmt::format("log silent{}: warnings but not one INFO record, logging was never set to INFO",
                       since);
  const double ahead = series.views.back().log.position - series.views[activity.first_view].log.position;
  if (ahead > 0)
    return fmt::format(
        "log silent{}: the run wrote {} into it within {}, which its file system does not show yet (a "
        "network?)",
        since, human_bytes(ahead), human_duration(activity.span_seconds));
  const double written = written_by_rank0(series, activity);
  if (unbuffered(series)) {
    if (written > 0) return fmt::format("log silent{}: the run writes, but not to this file", since);
    return {};
  }
  return buffered_text(series, written, silent);
}

}  // namespace eaglet::monitor
