#include "monitor/evidence.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "base/clock.h"
#include "monitor/server_activity.h"

namespace eaglet::monitor {
namespace {

std::string count_of(std::size_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string watts_text(const DeviceActivity& device) {
  return std::isnan(device.limit_w) ? fmt::format("{:.0f} W", device.power_w)
                                    : fmt::format("{:.0f} of {:.0f} W", device.power_w, device.limit_w);
}

class Gathering {
 public:
  Gathering(const RunSeries& series, const Activity& activity, const Thresholds& thresholds)
      : series_(series), a_(activity), t_(thresholds), spins_(spinning(activity, thresholds)) {}

  std::vector<Evidence> all() {
    progress_records();
    devices();
    cpu();
    io();
    waiting();
    promise();
    return std::move(found_);
  }

 private:
  void add(const char* kind, bool progress, std::string text) {
    found_.push_back({kind, std::move(text), progress});
  }

  void progress_records() {
    const std::string span = human_duration(a_.span_seconds);
    if (a_.steps_gained > 0)
      add("step", true,
          fmt::format("{} more step{} in {}", a_.steps_gained, a_.steps_gained == 1 ? "" : "s", span));
    if (a_.log_bytes_gained > 0)
      add("log", true, fmt::format("the log grew by {} in {}", human_bytes(a_.log_bytes_gained), span));
    if (a_.files_moved) add("files", true, "checkpoints or event files changed in " + span);
    if (a_.status_moved) add("status", true, "the run's own status moved in " + span);
    server();
    if (a_.memory_change_bytes > t_.memory_change_bytes)
      add("memory", true,
          fmt::format("GPU memory changed by {} in {}", human_bytes(a_.memory_change_bytes), span));
  }

  void server() {
    if (!a_.server.known) return;
    if (a_.server.moved)
      add("server", true, "it serves: " + server_text(a_.server));
    else if (a_.server.requests() > 0 && a_.server.still_seconds > t_.stall_min_seconds)
      add("server", false,
          fmt::format("it has {:.0f} requests and made no token in {}", a_.server.requests(),
                      human_duration(a_.server.still_seconds)));
  }

  void devices() {
    if (!a_.devices_known || std::isnan(a_.busy_pct)) return;
    const DeviceActivity& one = a_.devices.front();
    const std::string share = std::isnan(a_.above_idle)
                                  ? std::string("power not known")
                                  : fmt::format("{:.0f} W{}, {:.0f} % of the span above idle", a_.power_w,
                                                a_.devices.size() > 1 ? " each" : "", 100 * a_.above_idle);
    if (spins_) {
      std::size_t waiting = 0;
      const DeviceActivity* shown = &one;
      for (const DeviceActivity& device : a_.devices)
        if (device.busy_pct > t_.busy_pct) {
          ++waiting;
          shown = &device;
        }
      add("power", false,
          fmt::format(
              "{} {:.0f} % busy at only {} ({:.0f} % of the span above idle): kernels that wait, not compute",
              count_of(waiting, "GPU"), shown->busy_pct, watts_text(*shown), 100 * shown->above_idle));
    } else if (a_.busy_pct >= t_.idle_busy_pct && (std::isnan(a_.above_idle) || a_.above_idle >= t_.spin_r)) {
      // Without power a busy figure proves nothing: waiting kernels show 100 % too.
      if (others_work())
        add("gpu", false, "the GPUs are busy with another program's work, this run's share is nothing");
      else if (!std::isnan(a_.above_idle))
        add("gpu", true,
            fmt::format("{} {:.0f} % busy, {}", count_of(a_.devices.size(), "GPU"), a_.busy_pct, share));
    } else if (a_.busy_pct < t_.idle_busy_pct) {
      add("gpu", false,
          fmt::format("{} at {:.0f} %, {}", count_of(a_.devices.size(), "GPU"), a_.busy_pct, share));
    }
    for (const DeviceActivity& device : a_.devices)
      if (device.tensor_pct < 2 && device.busy_pct > t_.busy_pct) {
        add("tensor", false,
            fmt::format("GPU {}: tensor units active {:.1f} %", device.index, device.tensor_pct));
        break;
      }
  }

  void cpu() {
    if (std::isnan(a_.tree_cores) || a_.span_seconds <= 0) return;
    const std::string span = human_duration(a_.span_seconds);
    const RankActivity* odd = odd_rank(a_, t_);
    if (a_.tree_cores < t_.idle_cores) {
      const std::size_t workers = a_.roles.workers.size();
      add("cpu", false,
          fmt::format("{}{} used {:.1f} s of CPU in {}", count_of(a_.ranks.size(), "rank"),
                      workers > 0 ? " and " + count_of(workers, "loader worker") : "", a_.tree_cpu_seconds,
                      span));
    } else if (spins_ && odd != nullptr && odd->cores < t_.idle_cores) {
      add("cpu", false,
          fmt::format("rank {} (pid {}) used no CPU in {} while the others kept a core busy each", odd->rank,
                      odd->pid, span));
    } else if (spins_) {
      if (one_thread_each())
        add("cpu", false,
            fmt::format("exactly one busy thread per rank ({:.1f} cores), nothing else moves",
                        a_.tree_cores));
    } else {
      add("cpu", true,
          fmt::format("CPU time grew by {:.{}f} s in {} ({:.1f} cores over {})", a_.tree_cpu_seconds,
                      a_.tree_cpu_seconds < 10 ? 1 : 0, span, a_.tree_cores,
                      count_of(a_.ranks.size() + a_.roles.workers.size(), "process")));
      if (found_.back().text.ends_with("processs)"))
        found_.back().text.replace(found_.back().text.size() - 9, 9, "processes)");
    }
  }

  /// Busy devices, and by the driver's word none of it is ours.
  bool others_work() const {
    bool any = false;
    for (const DeviceActivity& device : a_.devices) {
      if (device.busy_pct < t_.idle_busy_pct) continue;
      if (!(device.own_busy_pct < t_.idle_busy_pct) || !(device.foreign_busy_pct > t_.shared_busy_warn))
        return false;
      any = true;
    }
    return any;
  }

  bool one_thread_each() const {
    for (const RankActivity& rank : a_.ranks)
      if (!(rank.cores > 0.7 && rank.cores < 1.4)) return false;
    return !a_.ranks.empty() && a_.worker_cores < t_.idle_cores && a_.log_bytes_gained <= 0;
  }

  void io() {
    if (!a_.io_known) return;
    const double rate = a_.read_bytes_per_second + a_.write_bytes_per_second;
    if (rate > 1e6) add("io", true, fmt::format("reads and writes {}/s", human_bytes(rate)));
    if (rate < t_.quiet_bytes_per_second) add("io", false, "reads and writes nothing");
  }

  void waiting() {
    if (a_.ranks.empty()) return;
    bool all_stopped = true, same_place = true;
    for (const RankActivity& rank : a_.ranks) {
      all_stopped = all_stopped && (rank.state == 'T' || rank.state == 't');
      same_place = same_place && rank.same_wait_place;
    }
    if (all_stopped) add("stopped", false, "stopped by a signal or a debugger (state T)");
    if (same_place && a_.views >= 5)
      add("wait", false,
          fmt::format("main thread in {} in all {} samples", a_.ranks.front().wait_place, a_.views));
  }

  void promise() {
    const RunView& last = series_.views.back();
    if (!last.status || last.status->next_by <= 0 || std::isnan(last.wall)) return;
    const double late = last.wall - last.status->next_by;
    if (late > 5)
      add("promise", false, "the run promised a sign of life " + human_duration(late) + " ago");
    else
      add("promise", true, "the run's status is fresh and its promise holds");
  }

  const RunSeries& series_;
  const Activity& a_;
  const Thresholds& t_;
  const bool spins_;
  std::vector<Evidence> found_;
};

}  // namespace

std::vector<Evidence> gather_evidence(const RunSeries& series, const Activity& activity,
                                      const Thresholds& thresholds) {
  return Gathering(series, activity, thresholds).all();
}

int kinds(const std::vector<Evidence>& evidence, bool progress) {
  std::set<std::string> found;
  for (const Evidence& one : evidence)
    if (one.progress == progress) found.insert(one.kind);
  return static_cast<int>(found.size());
}

bool has_kind(const std::vector<Evidence>& evidence, const std::string& kind, bool progress) {
  for (const Evidence& one : evidence)
    if (one.kind == kind && one.progress == progress) return true;
  return false;
}

bool spinning(const Activity& activity, const Thresholds& thresholds) {
  bool any = false;
  for (const DeviceActivity& device : activity.devices) {
    if (device.above_idle >= thresholds.spin_r) return false;
    any = any || (device.busy_pct > thresholds.busy_pct && device.above_idle < thresholds.spin_r);
  }
  return any;
}

const RankActivity* odd_rank(const Activity& activity, const Thresholds& thresholds) {
  if (activity.ranks.size() < 2) return nullptr;
  const RankActivity* odd = nullptr;
  std::size_t count = 0;
  const auto device_busy = [&](const RankActivity& rank) {
    for (const DeviceActivity& device : activity.devices)
      if (device.index == rank.device) return device.busy_pct;
    return kNotKnown;
  };
  for (const RankActivity& rank : activity.ranks) {
    double others_cores = 0, others_busy = 0, known = 0;
    for (const RankActivity& other : activity.ranks) {
      if (&other == &rank) continue;
      others_cores += std::isnan(other.cores) ? 0 : other.cores;
      if (const double busy = device_busy(other); !std::isnan(busy)) {
        others_busy += busy;
        ++known;
      }
    }
    others_cores /= static_cast<double>(activity.ranks.size() - 1);
    // Beside a GPU a rank keeps a core busy; without one it may get less of a machine that is shared.
    const double busy_cores = activity.devices_known ? 0.5 : 3 * thresholds.idle_cores;
    const bool no_cpu = rank.cores < thresholds.idle_cores && others_cores > busy_cores;
    const bool no_gpu = known > 0 && device_busy(rank) < thresholds.idle_busy_pct &&
                        others_busy / known > thresholds.busy_pct;
    const bool stopped = rank.state == 'T' || rank.state == 't';
    if (!no_cpu && !no_gpu && !stopped) continue;
    odd = &rank;
    ++count;
  }
  return count == 1 ? odd : nullptr;
}

}  // namespace eaglet::monitor
