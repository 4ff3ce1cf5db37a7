#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/draft_cost.h"
#include "monitor/judges.h"

namespace eaglet::monitor {
namespace {

Judgement judgement(const char* name, Level level, std::string reason) {
  Judgement j;
  j.name = name;
  j.layer = Layer::kHardware;
  j.level = level;
  j.reason = std::move(reason);
  return j;
}

void add_share(const char* name, double used, double total, double crit, const std::string& what,
               const char* advice, Judgements* all) {
  if (std::isnan(used) || !(total > 0)) return;
  const double share = used / total;
  Judgement j = judgement(name, share > crit ? Level::kCrit : Level::kOk,
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
  all->push_back(judgement(
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
  Judgement j =
      judgement("cpu_quota", Level::kWarn,
                fmt::format("throttled by the container's CPU quota of {:.1f} cores for {:.0f} % of the time",
                            last.quota_cores, 100 * share));
  j.value = share;
  j.window_seconds = c.activity.span_seconds;
  j.threshold = fmt::format("warn > {}", c.thresholds.throttled_warn);
  j.advice = "raise the quota or lower the number of threads and workers";
  all->push_back(j);
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
  all->push_back(judgement("swap", Level::kWarn,
                           fmt::format("{} of the run are swapped out, and growing", human_bytes(now))));
  all->back().advice = "lower the number of workers or the prefetch";
}

void add_disk(const Case& c, Judgements* all) {
  const HostView& host = c.series.views.back().host;
  if (std::isnan(host.disk_free)) return;
  double checkpoint = 0;
  for (const CheckpointSeen& seen : c.activity.checkpoints) checkpoint = std::max(checkpoint, seen.bytes);
  // Before the first one: weights in bf16, and two moments in fp32 of what is trained.
  if (const auto shape = draft_shape(c.config); checkpoint <= 0 && shape)
    checkpoint = 2 * total_parameters(*shape) + 8 * trainable_parameters(*shape);
  const bool full = checkpoint > 0 && host.disk_free < c.thresholds.disk_free_checkpoints * checkpoint;
  const bool low = host.disk_free < c.thresholds.disk_free_warn * host.disk_total;
  Judgement j = judgement("disk",
                          full  ? Level::kCrit
                          : low ? Level::kWarn
                                : Level::kOk,
                          fmt::format("{} free for checkpoints", human_bytes(host.disk_free)));
  if (full)
    j.reason =
        fmt::format("{} free, a checkpoint takes {}", human_bytes(host.disk_free), human_bytes(checkpoint));
  j.value = host.disk_free;
  j.unit = "bytes";
  j.threshold = fmt::format("crit < {:.0f} checkpoints, warn < {:.0f} %", c.thresholds.disk_free_checkpoints,
                            100 * c.thresholds.disk_free_warn);
  if (j.level != Level::kOk) j.advice = "free space where checkpoints go: " + host.disk_path;
  all->push_back(j);
  if (!(host.inodes_total > 0) || host.inodes_free >= c.thresholds.disk_free_warn * host.inodes_total) return;
  Judgement files =
      judgement("inodes", Level::kWarn,
                fmt::format("room for {:.0f} more files where checkpoints go", host.inodes_free));
  files.value = host.inodes_free;
  files.unit = "files";
  files.threshold = fmt::format("warn < {:.0f} %", 100 * c.thresholds.disk_free_warn);
  files.advice = "remove small files: " + host.disk_path;
  all->push_back(files);
}

/// Runs without a GPU: cores against the cores they may use.
void add_cores(const Case& c, Judgements* all) {
  const HostView& host = c.series.views.back().host;
  if (c.activity.devices_known || std::isnan(c.activity.tree_cores) || std::isnan(host.cores) ||
      c.activity.span_seconds <= 0)
    return;
  const double allowed = std::isnan(host.quota_cores) ? host.cores : std::min(host.cores, host.quota_cores);
  const double share = c.activity.tree_cores / allowed;
  Judgement j = judgement("cores", Level::kOk,
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
  add_swap(c, &all);
  add_disk(c, &all);
  return all;
}

}  // namespace eaglet::monitor
