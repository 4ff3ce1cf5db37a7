#pragma once

#include <string>
#include <vector>

#include "monitor/activity.h"
#include "monitor/thresholds.h"
#include "monitor/view.h"

namespace eaglet::monitor {

enum class RunState { kRunning, kStarting, kFinished, kLate, kStalled, kDead, kUnknownState };
const char* state_word(RunState state);  // "RUNNING", "STARTING", ...

enum class Phase { kStart, kLoad, kCompile, kTrain, kValidate, kSave, kDrain, kDone, kServe };
const char* phase_word(Phase phase);

/// One observation that speaks for progress or for a stall. Kinds are independent of each other: two of one
/// kind count once.
struct Evidence {
  std::string kind;  // "step", "cpu", "gpu", "power", "io", "memory", "log", "files", "wait", "promise", ...
  std::string text;
  bool progress = false;
};

struct OrphanSeen {
  std::int64_t pid = -1, device = -1;
  double device_bytes = kNotKnown;
  std::string command;
};

/// The state of a run, why, and what to do.
struct StateVerdict {
  RunState state = RunState::kUnknownState;
  Phase phase = Phase::kStart;
  std::string cause;    // "waiting in a collective; suspect rank 2 (pid 4103)"
  std::string silence;  // why the log says nothing, with the proof; empty when it speaks
  std::string advice, next;
  std::vector<Evidence> evidence;
  std::int64_t suspect_pid = -1, suspect_rank = -1;
  double silent_seconds = kNotKnown, allowed_seconds = kNotKnown;
  std::int64_t resume_step = -1, lost_steps = -1;
  std::string resume_path;
  std::vector<OrphanSeen> orphans;
};

/// docs/watch.md, "The state of a run". Stalled needs silence beyond what the phase allows and two
/// independent pieces of evidence over time; running needs two as well; a single view is "not enough yet"
/// unless the run is gone.
StateVerdict judge_state(const RunSeries& series, const Activity& activity, const Thresholds& thresholds);

Phase infer_phase(const RunSeries& series, const Activity& activity, const Thresholds& thresholds);
/// How long a phase may go without a strong tick.
double allowed_silence(Phase phase, const RunSeries& series, const Thresholds& thresholds);

}  // namespace eaglet::monitor
