#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "monitor/roles.h"
#include "monitor/thresholds.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// One rank over the window. NaN: not known.
struct RankActivity {
  std::int64_t pid = -1, rank = -1, device = -1;
  char state = '?';
  double cores = kNotKnown;
  bool same_wait_place = false;  // the same kernel function in at least five views
  std::string wait_place;
};

/// A rank that was seen and is not there any more, while others are.
struct GoneRank {
  std::int64_t pid = -1, rank = -1;
  double seconds = 0;  // since it was last seen
};

/// One device over the window: means of all views.
struct DeviceActivity {
  std::int64_t index = -1;
  std::string name;
  double busy_pct = kNotKnown, power_w = kNotKnown, limit_w = kNotKnown;
  double idle_w = kNotKnown;      // as it was seen, else a share of the limit
  double above_idle = kNotKnown;  // r = (P - idle) / (limit - idle)
  double used_bytes = kNotKnown, total_bytes = kNotKnown, change_bytes = 0;
  double tensor_pct = kNotKnown;
  double own_busy_pct = kNotKnown, foreign_busy_pct = kNotKnown;  // whose work it was (device_share.h)
  std::int64_t foreign_pid = -1;
};

struct CheckpointSeen {
  std::string path;  // the checkpoint's folder
  std::int64_t step = -1;
  double mtime = kNotKnown, bytes = 0;
};

/// A server over the window (ServerMoment says what of).
struct ServerActivity {
  bool known = false;    // it answered in the window
  bool answers = false;  // and at the last time it was asked
  std::string kind, trouble;
  double running = kNotKnown, waiting = kNotKnown, cache_share = kNotKnown;  // at the last answer
  double prompt_tokens_per_second = kNotKnown, generated_tokens_per_second = kNotKnown;
  bool moved = false;                  // it did work in the window
  double still_seconds = kNotKnown;    // since its counters last moved, as far as was seen
  double silent_seconds = 0;           // since it last answered
  double accepted_length = kNotKnown;  // tokens per pass in the window

  /// Requests that it has and must work on.
  double requests() const {
    return (std::isnan(running) ? 0 : running) + (std::isnan(waiting) ? 0 : waiting);
  }
};

/// What moved between the first and the last view, from counters where there are such. Gauges are means.
struct Activity {
  std::size_t first_view = 0;  // index of the window's first view
  double span_seconds = 0;
  int views = 0;  // in the window
  bool processes_known = false, devices_known = false, io_known = false;
  Roles roles;  // of the last view
  std::vector<RankActivity> ranks;
  std::vector<GoneRank> gone_ranks;
  double tree_cores = kNotKnown, worker_cores = kNotKnown, tree_cpu_seconds = kNotKnown;
  double compile_cores = 0;  // of torch's compile workers, which stay when nothing is compiled
  std::vector<DeviceActivity> devices;
  double busy_pct = kNotKnown, power_w = kNotKnown, above_idle = kNotKnown;  // means over devices
  bool changing = false;  // one phase has just ended, another begun: the means tell of neither
  double memory_change_bytes = 0;
  double read_bytes_per_second = kNotKnown, write_bytes_per_second = kNotKnown;
  std::int64_t steps_gained = 0;
  double log_bytes_gained = 0;
  bool files_moved = false, status_moved = false;
  double age_seconds = kNotKnown;  // of the oldest rank

  ServerActivity server;

  /// Strong clocks: step in the log, checkpoint, event file, the run's own status.
  double silent_seconds = kNotKnown;  // since the newest strong tick, as seen at the last view
  std::string strong_what;            // "log", "checkpoint run/checkpoint-400", "status"
  double log_silent_seconds = kNotKnown;
  std::vector<CheckpointSeen> checkpoints;  // by step, oldest first
  std::int64_t last_step = -1;              // from log, status or checkpoints
};

/// The window is the last minute (Thresholds::window_seconds), at least the last two views.
Activity activity_of(const RunSeries& series, const Thresholds& thresholds);

/// The newest checkpoint to go on from: one that is much smaller than the largest was cut off while it was
/// written. nullptr when there is none.
const CheckpointSeen* newest_whole_checkpoint(const Activity& activity);

/// "run/checkpoint-400/model.safetensors" -> step 400 and "run/checkpoint-400"; "epoch=1-step=500.ckpt" ->
/// 500 and itself; step -1 when it is none.
CheckpointSeen checkpoint_of_path(const std::string& path);
/// The same, also of one whose step stands in a file (FileView::step): speculators' "0", "1", ... by epochs.
CheckpointSeen checkpoint_of_file(const FileView& file);
/// Whether the file is one a run writes while it trains: checkpoints, event files; not the log.
bool is_event_file(const std::string& path);

}  // namespace eaglet::monitor
