#include <algorithm>
#include <cmath>

#include "monitor/draft_cost.h"
#include "monitor/run_state.h"
#include "monitor/server_activity.h"

namespace eaglet::monitor {
namespace {

constexpr double kGapsOfSeconds = 3600;

bool memory_held(const Activity& activity) {
  for (const DeviceActivity& device : activity.devices)
    if (device.used_bytes > 1e9) return true;
  return false;
}

/// What a large draft loads, and what it saves, by its shape; 0 when that is not known.
double weight_bytes(const RunSeries& series) {
  const auto shape = draft_shape(RunConfig(series));
  return shape ? 2 * total_parameters(*shape) : 0;
}
double saved_bytes(const RunSeries& series) {
  const auto shape = draft_shape(RunConfig(series));
  return shape ? checkpoint_bytes(*shape) : 0;
}

Phase phase_of_status(const RunStatus& status) {
  if (status.phase == "train") return Phase::kTrain;
  if (status.phase == "validate") return Phase::kValidate;
  if (status.phase == "checkpoint") return Phase::kSave;
  return status.phase == "prepare" ? Phase::kLoad : Phase::kDone;
}

}  // namespace

const char* phase_word(Phase phase) {
  constexpr const char* words[] = {"start", "load",  "compile", "train", "validate",
                                   "save",  "drain", "done",    "serve"};
  return words[static_cast<int>(phase)];
}

Phase infer_phase(const RunSeries& series, const Activity& activity, const Thresholds& thresholds) {
  const RunView& last = series.views.back();
  if (series.log_known && series.log.finished) return Phase::kDone;
  if (last.status) return phase_of_status(*last.status);
  if (is_server(series, activity)) return Phase::kServe;
  if (activity.write_bytes_per_second > thresholds.save_bytes_per_second) return Phase::kSave;
  if (series.log_known && series.log.phase == LogPhase::kSave) return Phase::kSave;
  if (series.log_known && series.log.phase == LogPhase::kValidate) return Phase::kValidate;
  const bool gpu_idle = !activity.devices_known || activity.busy_pct < thresholds.idle_busy_pct;
  const bool cores_work = activity.tree_cores >= 0.8;
  // Shapes that change, or the first validation, compile again in the middle of a training.
  const bool compiles = activity.devices_known && gpu_idle && activity.compile_cores >= 0.5;
  if (compiles) return Phase::kCompile;
  if (activity.last_step >= 0 || series.log.records > 0) {
    const std::int64_t total = series.log.total_steps;
    if (total > 0 && activity.last_step >= total) return Phase::kDrain;
    return Phase::kTrain;
  }
  if (!activity.roles.compile_workers.empty() || series.log.phase == LogPhase::kCompile)
    return Phase::kCompile;
  const bool reads = activity.read_bytes_per_second > 20e6;
  if (series.log.phase == LogPhase::kLoad || reads ||
      activity.memory_change_bytes > thresholds.memory_change_bytes)
    return Phase::kLoad;
  if (activity.devices_known && gpu_idle && cores_work && memory_held(activity)) return Phase::kCompile;
  // Devices that compute for long without a word are training.
  if (activity.devices_known && activity.above_idle >= thresholds.spin_r && activity.busy_pct > 50)
    return Phase::kTrain;
  return Phase::kStart;
}

namespace {

// What is printed every 50 or 500 steps gives its own rhythm: the longest gap seen between two records.
// Of the last hour: one that was stopped for a night must not be left alone for the next three.
double allowed_training(const LogFacts& log, const Thresholds& thresholds) {
  const double interval = log.step_interval();
  double gap = 0;
  const auto& times = log.step_times;
  for (std::size_t i = 1; i < times.size(); ++i)
    if (times.back().second - times[i].second < kGapsOfSeconds)
      gap = std::max(gap, times[i].second - times[i - 1].second);
  const double by_step = std::isnan(interval) ? 0 : thresholds.stall_step_factor * interval;
  return std::max({thresholds.stall_min_seconds, by_step, thresholds.stall_gap_factor * gap});
}

// Twice the last one; the first by its batches, as long as steps of training take. A loss of held-out text
// that is printed when it is there looks like the beginning of one, so the rhythm of training counts too.
double allowed_validation(const LogFacts& log, const Thresholds& thresholds) {
  if (!std::isnan(log.last_validation_seconds))
    return std::max(allowed_training(log, thresholds),
                    thresholds.validate_factor * log.last_validation_seconds);
  const double interval = log.step_interval(), batches = static_cast<double>(log.val_batches.value_or(0));
  return std::max(thresholds.validate_seconds, std::isnan(interval) ? 0 : batches * interval);
}

}  // namespace

double allowed_silence(Phase phase, const RunSeries& series, const Thresholds& thresholds) {
  switch (phase) {
    case Phase::kStart:
      return thresholds.start_seconds;
    case Phase::kLoad:
      return std::max(thresholds.load_seconds, weight_bytes(series) / thresholds.load_bytes_per_second);
    case Phase::kCompile:
      return series.log.records > 0 ? thresholds.recompile_seconds : thresholds.compile_seconds;
    case Phase::kValidate:
      return allowed_validation(series.log, thresholds);
    case Phase::kSave:
      return std::max(thresholds.save_seconds, saved_bytes(series) / thresholds.save_bytes_per_second);
    case Phase::kDrain:
    case Phase::kDone:
      return thresholds.drain_seconds;
    case Phase::kServe:
      return thresholds.stall_min_seconds;
    case Phase::kTrain:
      break;
  }
  return allowed_training(series.log, thresholds);
}

}  // namespace eaglet::monitor
