#include "monitor/activity.h"

#include <algorithm>
#include <cmath>

#include "monitor/device_share.h"
#include "monitor/server_activity.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

const ProcessView* same_process(const RunView& view, const ProcessView& wanted) {
  if (!view.processes) return nullptr;
  for (const ProcessView& process : *view.processes) {
    const bool same_start = std::isnan(process.start_time) || std::isnan(wanted.start_time) ||
                            process.start_time == wanted.start_time;
    if (process.pid == wanted.pid && same_start) return &process;
  }
  return nullptr;
}

/// Growth of a counter of one process; 0 when either end is unknown and nothing was known.
double growth(const RunView& first, const ProcessView& last, double ProcessView::*counter) {
  const ProcessView* before = same_process(first, last);
  if (before == nullptr) return last.*counter;  // born in the window: all of it
  return last.*counter - before->*counter;
}

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double value) {
    if (std::isnan(value)) return;
    sum += value;
    ++count;
  }
  double value() const { return count == 0 ? kNotKnown : sum / count; }
};

std::int64_t device_of(const RunView& view, std::int64_t pid, std::int64_t rank) {
  if (view.device_processes)
    for (const DeviceProcess& process : *view.device_processes)
      if (process.pid == pid) return process.device;
  return rank;
}

void measure_ranks(const RunSeries& series, const RunView& first, const RunView& last, Activity* activity) {
  const auto& all = *last.processes;
  const auto cores = [&](std::size_t i) {
    return activity->span_seconds > 0
               ? growth(first, all[i], &ProcessView::cpu_seconds) / activity->span_seconds
               : kNotKnown;
  };
  double tree = 0, workers = 0, seconds = 0;
  bool known = false;
  for (const std::size_t i : activity->roles.ranks) {
    RankActivity rank;
    rank.pid = all[i].pid;
    rank.rank = all[i].rank;
    rank.state = all[i].state;
    rank.cores = cores(i);
    rank.device = device_of(last, rank.pid, rank.rank);
    rank.wait_place = all[i].wait_place;
    int same = 0;
    for (std::size_t v = activity->first_view; v < series.views.size(); ++v)
      if (const ProcessView* then = same_process(series.views[v], all[i]);
          then != nullptr && !then->wait_place.empty())
        same += then->wait_place == rank.wait_place;
    rank.same_wait_place = same >= 5 && same == activity->views;
    if (!std::isnan(rank.cores)) {
      tree += rank.cores;
      known = true;
    }
    if (!std::isnan(all[i].elapsed_seconds))
      activity->age_seconds = std::isnan(activity->age_seconds)
                                  ? all[i].elapsed_seconds
                                  : std::max(activity->age_seconds, all[i].elapsed_seconds);
    activity->ranks.push_back(rank);
  }
  for (const std::size_t i : activity->roles.workers)
    if (const double used = cores(i); !std::isnan(used)) workers += used;
  for (const std::size_t i : activity->roles.compile_workers)
    if (const double used = cores(i); !std::isnan(used)) activity->compile_cores += used;
  workers += activity->compile_cores;
  seconds = (tree + workers) * activity->span_seconds;
  if (!known) return;
  activity->tree_cores = tree + workers;
  activity->worker_cores = workers;
  activity->tree_cpu_seconds = seconds;
}

/// Ranks by number only, and only when nobody has that number now: helpers that a rank starts and that come
/// and go inherit its number with its environment.
void find_gone_ranks(const RunSeries& series, Activity* activity) {
  const RunView& last = series.views.back();
  if (activity->ranks.empty()) return;
  for (const std::size_t at : {std::size_t{0}, activity->first_view}) {
    const RunView& then = series.views[at];
    if (!then.processes) continue;
    for (const std::size_t i : roles_of(then).ranks) {
      const ProcessView& process = (*then.processes)[i];
      const bool listed = std::any_of(activity->gone_ranks.begin(), activity->gone_ranks.end(),
                                      [&](const GoneRank& gone) { return gone.pid == process.pid; });
      const bool taken = std::any_of(activity->ranks.begin(), activity->ranks.end(),
                                     [&](const RankActivity& rank) { return rank.rank == process.rank; });
      if (process.rank < 0 || listed || taken || same_process(last, process) != nullptr) continue;
      GoneRank gone{process.pid, process.rank, 0};
      for (std::size_t v = series.views.size(); v-- > 0 && same_process(series.views[v], process) == nullptr;)
        gone.seconds = seconds_between(series.views[v], last);
      activity->gone_ranks.push_back(gone);
    }
  }
}

void measure_io(const RunView& first, const RunView& last, Activity* activity) {
  double read = 0, written = 0;
  bool known = false;
  for (const auto* list : {&activity->roles.ranks, &activity->roles.workers})
    for (const std::size_t i : *list) {
      const ProcessView& process = (*last.processes)[i];
      const double disk = growth(first, process, &ProcessView::read_bytes);
      const double chars = growth(first, process, &ProcessView::read_chars);
      const double out = growth(first, process, &ProcessView::write_chars);
      if (std::isnan(disk) && std::isnan(chars)) continue;
      known = true;
      // Mapped files do not count as read calls, cached ones not as disk reads: the larger of the two.
      read += std::max(std::isnan(disk) ? 0 : disk, std::isnan(chars) ? 0 : chars);
      written += std::isnan(out) ? 0 : out;
    }
  activity->io_known = known && activity->span_seconds > 0;
  if (!activity->io_known) return;
  activity->read_bytes_per_second = read / activity->span_seconds;
  activity->write_bytes_per_second = written / activity->span_seconds;
}

/// The lowest minute that was seen without a process, else a share of the limit.
double idle_watts(const RunSeries& series, const DeviceView& device, const Thresholds& thresholds) {
  const auto seen = series.idle_watts.find(device.index);
  // A minute just after a load (clocks still high) is no idle minute: half of the limit is never idle.
  if (seen != series.idle_watts.end() && seen->second < 0.5 * device.limit_w) return seen->second;
  return thresholds.idle_power_fraction * device.limit_w;
}

/// What all devices did in one view; NaN: not told.
struct Work {
  double busy_pct = kNotKnown, above_idle = kNotKnown;
};
Work work_of(const RunSeries& series, const RunView& view, const Thresholds& thresholds) {
  Mean busy, above;
  if (view.devices)
    for (const DeviceView& device : *view.devices) {
      const double idle = idle_watts(series, device, thresholds);
      busy.add(device.busy_pct);
      above.add((device.power_w - idle) / (device.limit_w - idle));
    }
  return {busy.value(), above.value()};
}

/// From which view on devices may be judged. Work for one part of the window and none for the other, with one
/// or two switches, is a change of phase: means begin behind it, once it is settle_seconds old. What is
/// starved switches often, or stays between. Busy without power is no work: so ranks wait while one of them
/// saves.
std::size_t settled_view(const RunSeries& series, const Thresholds& thresholds, Activity* activity) {
  int switches = 0, between = 0, seen = 0;
  std::size_t changed = activity->first_view;
  bool last = false;
  for (std::size_t v = activity->first_view; v < series.views.size(); ++v) {
    const Work work = work_of(series, series.views[v], thresholds);
    if (std::isnan(work.busy_pct)) continue;
    const bool waits = work.above_idle<thresholds.spin_r, works = work.busy_pct> 50 && !waits;
    between += work.busy_pct > thresholds.idle_busy_pct && work.busy_pct < thresholds.busy_pct && !waits;
    if (seen > 0 && works != last) {
      ++switches;
      changed = v;
    }
    last = works;
    ++seen;
  }
  if (switches < 1 || switches > 2 || between >= seen / 2) return activity->first_view;
  const bool settled =
      seconds_between(series.views[changed], series.views.back()) >= thresholds.settle_seconds;
  activity->changing = !settled;
  return settled ? changed : activity->first_view;
}

void measure_devices(const RunSeries& series, const Thresholds& thresholds, Activity* activity) {
  const RunView& last = series.views.back();
  if (!last.devices) return;
  activity->devices_known = !last.devices->empty();
  Mean busy, power, above;
  const std::size_t from = settled_view(series, thresholds, activity);
  for (const DeviceView& now : *last.devices) {
    Mean device_busy, device_power, tensor;
    double first_used = kNotKnown;
    for (std::size_t v = activity->first_view; v < series.views.size(); ++v) {
      const RunView& view = series.views[v];
      if (!view.devices) continue;
      for (const DeviceView& then : *view.devices) {
        if (then.index != now.index) continue;
        if (std::isnan(first_used)) first_used = then.used_bytes;
        if (v < from) continue;
        device_busy.add(then.busy_pct);
        device_power.add(then.power_w);
        tensor.add(then.tensor_pct);
      }
    }
    DeviceActivity device;
    device.index = now.index;
    device.name = now.name;
    device.busy_pct = device_busy.value();
    device.power_w = device_power.value();
    device.tensor_pct = tensor.value();
    device.limit_w = now.limit_w;
    const double idle = idle_watts(series, now, thresholds);
    device.idle_w = idle;
    device.above_idle = std::max(0.0, (device.power_w - idle) / (now.limit_w - idle));
    if (std::isnan(device.power_w) || std::isnan(now.limit_w)) device.above_idle = kNotKnown;
    device.used_bytes = now.used_bytes;
    device.total_bytes = now.total_bytes;
    if (!std::isnan(first_used) && !std::isnan(now.used_bytes))
      device.change_bytes = now.used_bytes - first_used;
    activity->memory_change_bytes += std::abs(device.change_bytes);
    const DeviceShare share = share_of_device(series, activity->first_view, now.index);
    device.own_busy_pct = share.own_pct;
    device.foreign_busy_pct = share.foreign_pct;
    device.foreign_pid = share.foreign_pid;
    busy.add(device.busy_pct);
    power.add(device.power_w);
    above.add(device.above_idle);
    activity->devices.push_back(device);
  }
  activity->busy_pct = busy.value();
  activity->power_w = power.value();
  activity->above_idle = above.value();
}

void note_tick(double seconds_ago, const std::string& what, Activity* activity) {
  if (std::isnan(seconds_ago) || seconds_ago < 0) seconds_ago = std::isnan(seconds_ago) ? kNotKnown : 0;
  if (std::isnan(seconds_ago)) return;
  if (!std::isnan(activity->silent_seconds) && activity->silent_seconds <= seconds_ago) return;
  activity->silent_seconds = seconds_ago;
  activity->strong_what = what;
}

void measure_files(const RunView& first, const RunView& last, Activity* activity) {
  if (!last.files) return;
  for (const FileView& file : *last.files) {
    const CheckpointSeen checkpoint = checkpoint_of_file(file);
    const bool event = is_event_file(file.path);
    if (checkpoint.step < 0 && !event) continue;
    note_tick(last.wall - file.mtime, checkpoint.step < 0 ? "event file" : "checkpoint " + checkpoint.path,
              activity);
    const FileView* before = nullptr;
    if (first.files)
      for (const FileView& then : *first.files)
        if (then.path == file.path) before = &then;
    if (&first != &last && (before == nullptr || before->bytes != file.bytes || before->mtime != file.mtime))
      activity->files_moved = true;
    if (checkpoint.step < 0) continue;
    auto& all = activity->checkpoints;
    const auto known =
        std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.path == checkpoint.path; });
    if (known == all.end()) {
      all.push_back(checkpoint);
      all.back().mtime = file.mtime;
      all.back().bytes = file.bytes;
    } else {
      known->mtime = std::max(known->mtime, file.mtime);
      known->bytes += file.bytes;
    }
    activity->last_step = std::max(activity->last_step, checkpoint.step);
  }
  std::sort(activity->checkpoints.begin(), activity->checkpoints.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
}

/// When the log last grew: its own time where known, else the last view in which it was shorter.
void measure_log(const RunSeries& series, Activity* activity) {
  const RunView& first = series.views[activity->first_view];
  const RunView& last = series.views.back();
  if (!last.log.known) return;
  note_tick(last.wall - last.log.metric_time, "the tracker's newest record", activity);
  double ago = last.wall - last.log.mtime;
  if (std::isnan(ago) && first.log.known)
    for (std::size_t i = series.views.size(); i-- > 0;)
      if (series.views[i].log.bytes != last.log.bytes) {
        ago = seconds_between(series.views[i + 1 < series.views.size() ? i + 1 : i], last);
        break;
      }
  if (last.log.bytes > 0) activity->log_silent_seconds = ago;
  if (last.log.records > 0) note_tick(ago, "log", activity);
  activity->last_step = std::max(activity->last_step, last.log.last_step);
  if (!first.log.known || series.views.size() < 2) return;
  activity->log_bytes_gained = last.log.bytes - first.log.bytes;
  activity->steps_gained = last.log.last_step - first.log.last_step;
  if (activity->steps_gained == 0 && last.log.last_step < 0)
    activity->steps_gained = last.log.records - first.log.records;
  if (activity->steps_gained > 0 && std::isnan(ago)) note_tick(0, "log", activity);
}

void measure_status(const RunView& first, const RunView& last, Activity* activity) {
  if (!last.status) return;
  activity->last_step = std::max(activity->last_step, last.status->step);
  note_tick(last.wall - last.status_updated, "status.json", activity);
  if (!first.status || &first == &last) return;
  const std::int64_t gained = last.status->step - first.status->step;
  activity->steps_gained = std::max(activity->steps_gained, gained);
  activity->status_moved = gained != 0 || last.status->next_by != first.status->next_by;
}

std::size_t window_begin(const RunSeries& series, double window_seconds) {
  std::size_t begin = series.views.size() - 1;
  while (begin > 0 && (begin + 2 > series.views.size() ||
                       seconds_between(series.views[begin - 1], series.views.back()) <= window_seconds))
    --begin;
  return begin;
}

}  // namespace

Activity activity_of(const RunSeries& series, const Thresholds& thresholds) {
  Activity activity;
  if (series.views.empty()) return activity;
  activity.first_view = window_begin(series, thresholds.window_seconds);
  activity.views = static_cast<int>(series.views.size() - activity.first_view);
  const RunView& first = series.views[activity.first_view];
  const RunView& last = series.views.back();
  activity.span_seconds = activity.views > 1 ? std::max(0.0, seconds_between(first, last)) : 0;
  activity.roles = roles_of(last);
  activity.processes_known = last.processes.has_value();
  if (last.processes) {
    measure_ranks(series, first, last, &activity);
    find_gone_ranks(series, &activity);
    measure_io(first, last, &activity);
  }
  measure_devices(series, thresholds, &activity);
  measure_files(first, last, &activity);
  measure_log(series, &activity);
  measure_status(first, last, &activity);
  activity.server = server_activity(series, activity.first_view);
  if (activity.server.moved) note_tick(activity.server.still_seconds, "the server's counters", &activity);
  return activity;
}

const CheckpointSeen* newest_whole_checkpoint(const Activity& activity) {
  constexpr double kWholeShare = 0.9;  // sizes of one draft's checkpoints differ by a few bytes of JSON
  double largest = 0;
  for (const CheckpointSeen& seen : activity.checkpoints) largest = std::max(largest, seen.bytes);
  for (auto it = activity.checkpoints.rbegin(); it != activity.checkpoints.rend(); ++it)
    if (it->bytes >= kWholeShare * largest) return &*it;
  return nullptr;
}

}  // namespace eaglet::monitor
