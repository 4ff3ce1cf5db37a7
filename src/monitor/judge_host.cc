#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/draft_cost.h"
#include "monitor/judges.h"

namespace eaglet::monitor {
namespace {

void add_share(const char* name, double used, double total, double crit, const std::string& what,
               const char* advice, Judgements* all) {
  if (std::isnan(used) || !(total > 0)) return;
  const double share = used / total;
  Judgement j = hardware_judgement(name, share > crit ? Level::kCrit : Level::kOk,
                                   fmt::format("{} {:.0f} % of {}", what, 100 * share, human_bytes(total)));
  j.value = share;
  j.unit = "share";
  j.threshold = fmt::format("crit > {}", crit);
  if (j.level == Level::kCrit) j.advice = advice;
  all->push_back(j);
}

void add_oom(const Case& c, Judgements* all) {
  const double before = c.series.views[c.activity.first_view].host.oom_kills,
               now = c.series.views.back().host.oom_kills;
  if (!(now > before)) return;
  all->push_back(hardware_judgement(
      "oom_kill", Level::kCrit,
      fmt::format("the kernel killed {:.0f} process(es) of this container for memory", now - before)));
  all->back().advice = "fewer workers, smaller prefetch, or more memory";
}

void add_quota(const Case& c, Judgements* all) {
  const HostView& first = c.series.views[c.activity.first_view].host;
  const HostView& last = c.series.views.back().host;
  if (!(c.activity.span_seconds > 0)) return;
  const double share = (last.throttled_seconds - first.throttled_seconds) / c.activity.span_seconds;
  if (!(share > c.thresholds.throttled_warn)) return;
  Judgement j = hardware_judgement(
      "cpu_quota", Level::kWarn,
      fmt::format("throttled by the container's CPU quota of {:.1f} cores for {:.0f} % of the time",
                  last.quota_cores, 100 * share));
  j.value = share;
  j.window_seconds = c.activity.span_seconds;
  j.threshold = fmt::format("warn > {}", c.thresholds.throttled_warn);
  j.advice = "raise the quota or lower the number of threads and workers";
  all->push_back(j);
}

/// Growth of a counter of seconds over the window, as a share of it.
double share_of_window(const Case& c, double HostView::*seconds) {
  const HostView &first = c.series.views[c.activity.first_view].host, &last = c.series.views.back().host;
  if (!(c.activity.span_seconds > 0) || first.pressure_of_container != last.pressure_of_container)
    return kNotKnown;
  return std::clamp((last.*seconds - first.*seconds) / c.activity.span_seconds, 0.0, 1.0);
}

/// What the kernel counts of waiting (PSI): it also sees what waits outside the ranks, and memory that is
/// reclaimed all the time, which no other number shows.
void add_pressure(const Case& c, Judgements* all) {
  const bool container = c.series.views.back().host.pressure_of_container;
  const char* of = container ? "in the container" : "on the machine";
  const auto add = [&](const char* name, double share, bool bad, double limit, std::string reason,
                       const char* advice) {
    Judgement j = hardware_judgement(name, bad ? Level::kWarn : Level::kOk, std::move(reason));
    j.value = share;
    j.unit = "share";
    j.window_seconds = c.activity.span_seconds;
    j.threshold = fmt::format("warn > {}", limit);
    if (bad) j.advice = advice;
    all->push_back(std::move(j));
  };
  const double memory = share_of_window(c, &HostView::memory_some_seconds);
  if (!std::isnan(memory)) {
    const double full = share_of_window(c, &HostView::memory_full_seconds);
    std::string reason = fmt::format("waits for memory {:.0f} % of the time {}", 100 * memory, of);
    if (full > 0.01) reason += fmt::format(", everything at once {:.0f} %", 100 * full);
    const double limit = c.thresholds.memory_pressure_warn;
    add("memory_pressure", memory, memory > limit, limit, std::move(reason),
        "pages are freed and read again all the time: fewer workers, smaller prefetch, or more memory");
  }
  // That something waits for a core is how every busy machine is; that all wait at once is a quota.
  const double some = share_of_window(c, &HostView::cpu_some_seconds);
  if (std::isnan(some)) return;
  const double full = container ? share_of_window(c, &HostView::cpu_full_seconds) : kNotKnown;
  std::string reason = fmt::format("something waits for a core {:.0f} % of the time {}", 100 * some, of);
  if (full > 0.01) reason += fmt::format(", everything at once {:.0f} %", 100 * full);
  const double limit = c.thresholds.run_wait_warn;
  add("cpu_pressure", full > 0 ? full : some, full > limit, limit, std::move(reason),
      "the container's CPU quota stops it: raise the quota, or fewer threads and workers");
  if (!container) all->back().threshold = "none: of the whole machine";
}

/// Traffic of the machine: told where ranks run on several machines, or where it is much.
void add_network(const Case& c, Judgements* all) {
  const HostView &first = c.series.views[c.activity.first_view].host, &last = c.series.views.back().host;
  const double rate = (last.network_bytes - first.network_bytes) / c.activity.span_seconds;
  const bool several =
      c.config.number("world_size").value_or(0) > static_cast<double>(c.activity.ranks.size());
  if (!(c.activity.span_seconds > 0) || !(rate > (several ? 0 : 1e6))) return;
  Judgement j = hardware_judgement(
      "network", Level::kOk,
      fmt::format("{}/s over the network, in and out, of all programs", human_bytes(rate)));
  j.value = rate;
  j.unit = "bytes/s";
  j.window_seconds = c.activity.span_seconds;
  j.threshold = "none";
  all->push_back(std::move(j));
}

void add_swap(const Case& c, Judgements* all) {
  double before = 0, now = 0;
  const auto sum = [](const RunView& view, double* total) {
    if (!view.processes) return;
    for (const ProcessView& process : *view.processes)
      if (!std::isnan(process.swap_bytes)) *total += process.swap_bytes;
  };
  sum(c.series.views[c.activity.first_view], &before);
  sum(c.series.views.back(), &now);
  if (now < 1e6 || now <= before) return;
  all->push_back(hardware_judgement(
      "swap", Level::kWarn, fmt::format("{} of the run are swapped out, and growing", human_bytes(now))));
  all->back().advice = "lower the number of workers or the prefetch";
}

/// Few files that may still be made: a full table of inodes stops a run like a full disk.
void add_inodes(const Case& c, const char* name, const char* where, const DiskRoom& room, Judgements* all) {
  if (!(room.inodes_total > 0) || room.inodes_free >= c.thresholds.disk_free_warn * room.inodes_total) return;
  Judgement j = hardware_judgement(name, Level::kWarn,
                                   fmt::format("room for {:.0f} more files {}", room.inodes_free, where));
  j.value = room.inodes_free;
  j.unit = "files";
  j.threshold = fmt::format("warn < {:.0f} %", 100 * c.thresholds.disk_free_warn);
  j.advice = "remove small files: " + room.path;
  all->push_back(std::move(j));
}

void add_disk(const Case& c, Judgements* all) {
  const DiskRoom& room = c.series.views.back().host.disk;
  if (std::isnan(room.free)) return;
  double checkpoint = 0;
  for (const CheckpointSeen& seen : c.activity.checkpoints) checkpoint = std::max(checkpoint, seen.bytes);
  if (const auto shape = draft_shape(c.config); checkpoint <= 0 && shape)  // before the first one
    checkpoint = checkpoint_bytes(*shape);
  const bool full = checkpoint > 0 && room.free < c.thresholds.disk_free_checkpoints * checkpoint;
  const bool low = room.free < c.thresholds.disk_free_warn * room.total;
  Judgement j = hardware_judgement("disk",
                                   full  ? Level::kCrit
                                   : low ? Level::kWarn
                                         : Level::kOk,
                                   fmt::format("{} free for checkpoints", human_bytes(room.free)));
  if (full)
    j.reason = fmt::format("{} free, a checkpoint takes {}", human_bytes(room.free), human_bytes(checkpoint));
  j.value = room.free;
  j.unit = "bytes";
  j.threshold = fmt::format("crit < {:.0f} checkpoints, warn < {:.0f} %", c.thresholds.disk_free_checkpoints,
                            100 * c.thresholds.disk_free_warn);
  if (j.level != Level::kOk) j.advice = "free space where checkpoints go: " + room.path;
  all->push_back(j);
  add_inodes(c, "inodes", "where checkpoints go", room, all);
}

/// Where the data lies, if that is another file system: what fills it (extraction, caches of a loader) stops
/// when it is full.
void add_data_disk(const Case& c, Judgements* all) {
  const DiskRoom& room = c.series.views.back().host.data_disk;
  if (std::isnan(room.free) || !(room.total > 0)) return;
  const bool low = room.free < c.thresholds.disk_free_warn * room.total;
  Judgement j = hardware_judgement("data_disk", low ? Level::kWarn : Level::kOk,
                                   fmt::format("{} ({:.0f} %) free where the data lies",
                                               human_bytes(room.free), 100 * room.free / room.total));
  j.value = room.free;
  j.unit = "bytes";
  j.threshold = fmt::format("warn < {:.0f} %", 100 * c.thresholds.disk_free_warn);
  if (low) j.advice = "what writes states or caches there will stop: free space in " + room.path;
  all->push_back(std::move(j));
  add_inodes(c, "data_inodes", "where the data lies", room, all);
}

/// Runs without a GPU: cores against the cores they may use.
void add_cores(const Case& c, Judgements* all) {
  const HostView& host = c.series.views.back().host;
  if (c.activity.devices_known || std::isnan(c.activity.tree_cores) || std::isnan(host.cores) ||
      c.activity.span_seconds <= 0)
    return;
  const double allowed = std::isnan(host.quota_cores) ? host.cores : std::min(host.cores, host.quota_cores);
  const double share = c.activity.tree_cores / allowed;
  Judgement j =
      hardware_judgement("cores", Level::kOk,
                         fmt::format("no GPU; {:.1f} of {:.0f} cores busy", c.activity.tree_cores, allowed));
  j.value = share;
  j.unit = "share";
  j.window_seconds = c.activity.span_seconds;
  j.advice = "waiting threads may spin: only the step counter proves progress";
  all->push_back(j);
}

}  // namespace

Judgements judge_host(const Case& c) {
  Judgements all;
  const HostView& host = c.series.views.back().host;
  add_cores(c, &all);
  if (!std::isnan(host.memory_available))
    add_share("memory", host.memory_total - host.memory_available, host.memory_total,
              c.thresholds.memory_crit, "host memory",
              "the kernel will soon kill something: fewer workers, smaller prefetch", &all);
  add_share("cgroup_memory", host.cgroup_bytes, host.cgroup_limit, c.thresholds.memory_crit,
            "container memory", "fewer workers, smaller prefetch, or a larger limit", &all);
  add_share("shm", host.shm_bytes, host.shm_total, c.thresholds.shm_crit, "/dev/shm",
            "loader workers will die with a bus error: enlarge it or use threads", &all);
  add_oom(c, &all);
  add_quota(c, &all);
  add_pressure(c, &all);
  add_network(c, &all);
  add_swap(c, &all);
  add_disk(c, &all);
  add_data_disk(c, &all);
  return all;
}

}  // namespace eaglet::monitor
