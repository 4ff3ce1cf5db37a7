#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/draft_cost.h"
#include "monitor/evidence.h"
#include "monitor/judges.h"
#include "monitor/kernel_log.h"

namespace eaglet::monitor {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

/// The two-signal table: utilisation and power together, CPU and I/O to tell the rest apart.
struct Reading {
  Level level;
  std::string text, advice;
};

Reading low_power_reading(const Case& c) {
  const Activity& a = c.activity;
  if (a.tree_cores < c.thresholds.idle_cores) return {Level::kOk, "GPUs idle, CPU idle", ""};
  if (a.read_bytes_per_second > 20e6 || c.state.phase == Phase::kLoad)
    return {Level::kOk, "GPUs idle: loading weights or data", ""};
  if (a.write_bytes_per_second > 20e6 || c.state.phase == Phase::kSave)
    return {Level::kOk, "GPUs idle: saving", ""};
  if (a.tree_cores >= 0.8) return {Level::kOk, "GPUs idle, CPU busy: compile, tokenise, pack or import", ""};
  return {Level::kOk, "GPUs idle", ""};
}

/// One core per rank at its limit, loaders that are not, and little to read: the program itself is too slow.
bool starved_by_launch(const Case& c) {
  const Activity& a = c.activity;
  if (a.ranks.empty() || a.read_bytes_per_second > 20e6) return false;
  for (const RankActivity& rank : a.ranks)
    if (!(rank.cores > c.thresholds.launch_core && rank.cores < 1.5)) return false;
  return a.roles.workers.empty() || !(a.worker_cores > 0.8 * static_cast<double>(a.roles.workers.size()));
}

/// One rank saves or validates, and the others wait for it, in time.
bool one_works_alone(const Case& c) {
  return c.state.state == RunState::kRunning &&
         (c.state.phase == Phase::kSave || c.state.phase == Phase::kValidate);
}

std::string stacks_advice(const Case& c) {
  if (const RankActivity* odd = odd_rank(c.activity, c.thresholds); odd != nullptr)
    return fmt::format("stacks of the rank that differs: py-spy dump --pid {}", odd->pid);
  return "stacks of all ranks; the one that differs is the sick one";
}

Reading read_signals(const Case& c) {
  const Activity& a = c.activity;
  const Thresholds& t = c.thresholds;
  if (a.views < 2) return {Level::kUnknown, "one reading proves nothing", ""};
  if (std::isnan(a.busy_pct)) return {Level::kUnknown, "utilisation is not told (MIG, or no permission)", ""};
  if (spinning(a, t)) {
    if (one_works_alone(c))
      return {Level::kOk, "busy at near-idle power: ranks wait while one saves or validates", ""};
    const bool late = c.state.state == RunState::kStalled || c.state.state == RunState::kLate;
    return {late ? Level::kCrit : Level::kWarn,
            "busy at near-idle power: waiting inside a collective, or spinning", stacks_advice(c)};
  }
  if (a.busy_pct < t.idle_busy_pct) return low_power_reading(c);
  if (std::isnan(a.above_idle))
    return {Level::kUnknown, "busy, but power is not known: busy alone proves nothing", ""};
  if (a.changing) return {Level::kOk, "a phase ends and another begins", ""};
  if (c.state.phase == Phase::kSave) return {Level::kOk, "saving", ""};
  if (a.busy_pct <= t.busy_pct && a.above_idle < t.fill_r) {
    const double per_worker =
        a.roles.workers.empty() ? 0 : a.worker_cores / static_cast<double>(a.roles.workers.size());
    if (per_worker > 0.8)
      return {Level::kWarn,
              fmt::format(
                  "{:.0f} % of the time no kernel runs, loader workers at {:.1f} cores each: starved by data",
                  100 - a.busy_pct, per_worker),
              "more workers, data on a local disk, larger prefetch"};
    if (starved_by_launch(c))
      return {
          Level::kWarn,
          fmt::format(
              "gaps: {:.0f} % of the time no kernel runs, each rank keeps one core busy: starved by launch",
              100 - a.busy_pct),
          "tiny kernels or Python between them: longer packs, torch.compile or CUDA graphs, fewer .item() "
          "calls"};
    return {Level::kWarn, fmt::format("gaps: {:.0f} % of the time no kernel runs", 100 - a.busy_pct),
            "launch-bound (tiny kernels) or starved: see data_wait and the cores of the loaders"};
  }
  if (a.above_idle < t.fill_r)
    return {Level::kOk, "computing, under-filled", "small or padded work: check fill, max_seq_len, batch"};
  return {Level::kOk, a.above_idle > 0.9 ? "computing, bound by power: as good as it gets" : "computing", ""};
}

void add_power(const Case& c, Judgements* all) {
  const Activity& a = c.activity;
  const Reading reading = read_signals(c);
  const DeviceActivity& one = a.devices.front();
  std::string text =
      a.devices.size() == 1 ? fmt::format("GPU{}", one.index) : fmt::format("{} GPUs", a.devices.size());
  if (!std::isnan(a.busy_pct)) text += fmt::format(" busy {:.0f} %", a.busy_pct);
  if (!std::isnan(a.power_w)) text += fmt::format(", {:.0f}/{:.0f} W", a.power_w, one.limit_w);
  if (!std::isnan(a.above_idle)) text += fmt::format(" (r {:.2f})", a.above_idle);
  Judgement j = hardware_judgement("power", reading.level, text + ": " + reading.text);
  j.value = a.above_idle;
  j.unit = "share of the power span above idle";
  j.window_seconds = a.span_seconds;
  j.threshold = fmt::format("busy > {:.0f} % with r < {} waits; r < {} under-filled", c.thresholds.busy_pct,
                            c.thresholds.spin_r, c.thresholds.fill_r);
  if (!std::isnan(one.idle_w)) j.threshold += fmt::format("; idle {:.0f} W", one.idle_w);
  j.advice = reading.advice;
  all->push_back(j);
}

void add_faults(const Case& c, Judgements* all) {
  for (const DeviceView& device : *c.series.views.back().devices) {
    const std::string name = fmt::format("GPU {}", device.index);
    if (device.lost)
      all->push_back(hardware_judgement("lost", Level::kCrit,
                                        name + " is lost or needs a reset: reboot or reseat, see dmesg"));
    for (const std::int64_t xid : device.xids) {
      const bool fatal = is_fatal_xid(xid);
      Judgement j = hardware_judgement("xid", fatal ? Level::kCrit : Level::kWarn,
                                       fmt::format("{} reported Xid {}", name, xid));
      j.advice = fatal ? "a fault of the board or its link: drain this machine"
                       : "usually follows an error of the program or a kill";
      all->push_back(j);
    }
    if (device.ecc_uncorrected > 0 || device.remap_pending > 0) {
      Judgement j = hardware_judgement(
          "ecc", Level::kCrit,
          name + (device.ecc_uncorrected > 0 ? " has uncorrected memory errors"
                                             : " waits for a row remap or the retirement of a page"));
      j.advice = "drain this GPU";
      all->push_back(j);
    }
    if (!std::isnan(device.celsius) && device.slowdown_celsius - device.celsius <= 3) {
      Judgement j = hardware_judgement("temperature", Level::kWarn,
                                       fmt::format("{} at {:.0f} C, slows down at {:.0f} C", name,
                                                   device.celsius, device.slowdown_celsius));
      j.advice = "thermal limit: fans, neighbours, the room";
      all->push_back(j);
    }
  }
}

void add_slow_reasons(const Case& c, Judgements* all) {
  constexpr std::uint64_t kHardwareThermal = 0x40, kPowerBrake = 0x80, kSoftwareThermal = 0x20,
                          kHardware = 0x8;  // any of the hardware's own, or a change of clocks
  for (const DeviceView& now : *c.series.views.back().devices) {
    int seen = 0, hard = 0, brake = 0, soft = 0, any = 0;
    for (const RunView& view : c.series.views)
      if (view.devices)
        for (const DeviceView& device : *view.devices)
          if (device.index == now.index && device.slow_reasons) {
            ++seen;
            hard += (*device.slow_reasons & kHardwareThermal) != 0;
            brake += (*device.slow_reasons & kPowerBrake) != 0;
            soft += (*device.slow_reasons & kSoftwareThermal) != 0;
            any += (*device.slow_reasons & kHardware) != 0;
          }
    const auto often = [&](int count) { return count > 0 && count > 0.05 * seen; };
    const std::string name = fmt::format("GPU {}", now.index);
    if (often(brake)) {
      all->push_back(hardware_judgement("throttle", Level::kCrit, name + ": power brake"));
      all->back().advice = "the power supply's or rack's limit, not your code";
    } else if (often(hard)) {
      all->push_back(
          hardware_judgement("throttle", Level::kCrit, name + ": slowed by its hardware's heat limit"));
      all->back().advice = "cooling";
    } else if (often(soft)) {
      all->push_back(
          hardware_judgement("throttle", Level::kWarn, name + ": slowed by heat (software limit)"));
      all->back().advice = "cooling";
    } else if (any > 1 && often(any)) {
      all->push_back(hardware_judgement("throttle", Level::kWarn,
                                        name + ": slowed by its hardware, which does not say why"));
      all->back().advice = "heat, or a limit of the power supply";
    }
  }
}

/// "28.5 of 96 GiB: max_seq_len 8192 -> 16384 would fit, expected 41 GiB".
void add_memory(const Case& c, Judgements* all) {
  const DeviceActivity* fullest = nullptr;
  for (const DeviceActivity& device : c.activity.devices)
    if (!std::isnan(device.used_bytes) && device.total_bytes > 0 &&
        (fullest == nullptr ||
         device.used_bytes / device.total_bytes > fullest->used_bytes / fullest->total_bytes))
      fullest = &device;
  if (fullest == nullptr || fullest->used_bytes < 1e9) return;
  const double share = fullest->used_bytes / fullest->total_bytes;
  Judgement j = hardware_judgement(
      "gpu_memory", share > c.thresholds.gpu_memory_warn ? Level::kWarn : Level::kOk,
      fmt::format("{:.1f}/{:.0f} GiB", fullest->used_bytes / kGiB, fullest->total_bytes / kGiB));
  j.value = share;
  j.unit = "share";
  j.threshold = fmt::format("warn > {}", c.thresholds.gpu_memory_warn);
  if (j.level == Level::kWarn) j.advice = "one longer batch may not fit: lower max_seq_len";
  const auto seq = c.config.number("max_seq_len");
  const auto shape = draft_shape(c.config);
  if (share < c.thresholds.gpu_memory_room && seq && shape && c.state.phase == Phase::kTrain) {
    const double fixed = fixed_training_bytes(*shape), variable = fullest->used_bytes - fixed;
    // One doubling at a time: activations grow with the length, the rest does not.
    if (variable > 0 && fixed + 2 * variable < 0.9 * fullest->total_bytes)
      j.advice = fmt::format("max_seq_len {:.0f} -> {:.0f} would fit, expected about {:.0f} GiB", *seq,
                             2 * *seq, (fixed + 2 * variable) / kGiB);
  }
  if (!j.advice.empty() && j.level == Level::kOk) j.reason += " (" + j.advice + ")";
  all->push_back(j);
}

/// A rank that never came to its GPU: the others wait for it in their first collective.
void add_rank_without_memory(const Case& c, Judgements* all) {
  const RunView& last = c.series.views.back();
  if (!last.device_processes || !last.processes || c.series.in_container || c.activity.ranks.size() < 2)
    return;
  const RankActivity* without = nullptr;
  std::size_t missing = 0;
  for (const RankActivity& rank : c.activity.ranks) {
    const bool holds =
        std::any_of(last.device_processes->begin(), last.device_processes->end(), [&](const auto& p) {
          return p.pid == rank.pid && !(p.bytes == 0);  // a size that is not told is no nothing
        });
    if (holds) continue;
    without = &rank;
    ++missing;
  }
  // One that is alone in this, and long enough there: a process that only looks after the others is no rank.
  if (missing != 1 || without->rank < 0 || !(c.activity.age_seconds > c.thresholds.load_seconds)) return;
  if (c.activity.last_step > 0 || c.series.log.records > 0) return;
  Judgement j = hardware_judgement(
      "rank_memory", Level::kCrit,
      fmt::format("rank {} (pid {}) holds no GPU memory after {}, the other {} do", without->rank,
                  without->pid, human_duration(c.activity.age_seconds), c.activity.ranks.size() - 1));
  j.value = c.activity.age_seconds;
  j.unit = "s";
  j.threshold = fmt::format("crit: one of the ranks after {}", human_duration(c.thresholds.load_seconds));
  j.advice = "it did not get to its GPU: where it stands, and what CUDA_VISIBLE_DEVICES gives it";
  j.next = fmt::format("py-spy dump --pid {}", without->pid);
  all->push_back(std::move(j));
}

/// Memory on a device that none of its processes owns.
void add_unaccounted(const Case& c, Judgements* all) {
  const RunView& last = c.series.views.back();
  if (!last.device_processes || c.series.in_container) return;
  for (const DeviceView& device : *last.devices) {
    if (std::isnan(device.reserved_bytes) || std::isnan(device.used_bytes)) continue;
    double owned = 0;
    for (const DeviceProcess& process : *last.device_processes)
      if (process.device == device.index) owned += process.bytes;  // NaN when one is not told: unknown
    const double stale = device.used_bytes - device.reserved_bytes - owned;
    if (!(stale > c.thresholds.stale_gpu_bytes)) continue;
    Judgement j = hardware_judgement(
        "stale_memory", Level::kWarn,
        fmt::format("{:.1f} GiB on GPU {} belong to no process it lists", stale / kGiB, device.index));
    j.value = stale;
    j.unit = "bytes";
    j.threshold = fmt::format("warn > {}", human_bytes(c.thresholds.stale_gpu_bytes));
    j.next = "eaglet orphans";
    all->push_back(j);
  }
}

/// Somebody else on a GPU of ours. In a container the pids are another namespace's: nothing can be said.
void add_neighbours(const Case& c, Judgements* all) {
  const RunView& last = c.series.views.back();
  if (!last.device_processes || !last.processes || c.series.in_container) return;
  const auto ours = [&](std::int64_t pid) {
    return std::any_of(last.processes->begin(), last.processes->end(),
                       [&](const auto& p) { return p.pid == pid; });
  };
  for (const DeviceProcess& other : *last.device_processes) {
    const bool shared = std::any_of(last.device_processes->begin(), last.device_processes->end(),
                                    [&](const auto& p) { return p.device == other.device && ours(p.pid); });
    double busy = kNotKnown, own = kNotKnown;
    for (const DeviceActivity& device : c.activity.devices)
      if (device.index == other.device && device.foreign_pid == other.pid) {
        busy = device.foreign_busy_pct;
        own = device.own_busy_pct;
      }
    const bool large = other.bytes > c.thresholds.stale_gpu_bytes,
               works = busy > c.thresholds.shared_busy_warn;
    if (!shared || ours(other.pid) || !(large || works)) continue;
    Judgement j = hardware_judgement("shared_gpu", Level::kWarn,
                                     fmt::format("pid {}, not of this run, has {:.1f} GiB on GPU {}",
                                                 other.pid, other.bytes / kGiB, other.device));
    if (works)
      j.reason =
          fmt::format("pid {}, not of this run, takes {:.0f} % of GPU {}'s time, the run itself {:.0f} %",
                      other.pid, busy, other.device, own);
    j.value = works ? busy : other.bytes;
    j.unit = works ? "percent" : "bytes";
    j.threshold = fmt::format("warn > {}, or > {} % of the time", human_bytes(c.thresholds.stale_gpu_bytes),
                              c.thresholds.shared_busy_warn);
    j.advice = "two programs on a GPU slow each other down: give each its own";
    j.next = fmt::format("ps -fp {}", other.pid);
    all->push_back(j);
  }
}

/// Means over five minutes: one rank saves or validates alone for a while, and that is no straggler.
void add_straggler(const Case& c, Judgements* all) {
  const double seconds = c.thresholds.slow_window_seconds;
  const auto& views = c.series.views;
  if (seconds_between(views.front(), views.back()) < seconds) return;
  const DeviceActivity *least = nullptr, *most = nullptr;
  double least_r = 0, most_r = 0;
  for (const DeviceActivity& device : c.activity.devices) {
    if (device.busy_pct < c.thresholds.idle_busy_pct) continue;
    double sum = 0;
    int seen = 0;
    for (const RunView& view : views)
      if (view.devices && seconds_between(view, views.back()) <= seconds)
        for (const DeviceView& then : *view.devices)
          if (then.index == device.index && !std::isnan(then.power_w)) {
            sum += then.power_w;
            ++seen;
          }
    const double r = (sum / seen - device.idle_w) / (device.limit_w - device.idle_w);
    if (seen == 0 || std::isnan(r)) continue;
    if (least == nullptr || r < least_r) least = &device, least_r = r;
    if (most == nullptr || r > most_r) most = &device, most_r = r;
  }
  if (least == nullptr || !(least_r > 0.05) || most_r / least_r <= c.thresholds.straggler_ratio) return;
  Judgement j = hardware_judgement("straggler", Level::kWarn,
                                   fmt::format("GPU {} works less than the others: r {:.2f}, GPU {} {:.2f}",
                                               least->index, least_r, most->index, most_r));
  j.value = most_r / least_r;
  j.window_seconds = seconds;
  j.threshold = fmt::format("warn: powers above idle more than {}x apart", c.thresholds.straggler_ratio);
  j.advice = "it gets shorter batches, or is slower: compare clocks, heat and neighbours of both";
  all->push_back(j);
}

void add_spread(const Case& c, Judgements* all) {
  const RankActivity* odd = odd_rank(c.activity, c.thresholds);
  if (odd != nullptr && c.activity.views > 1 && !one_works_alone(c)) {
    const bool late = c.state.state == RunState::kStalled || c.state.state == RunState::kLate;
    Judgement j = hardware_judgement(
        "odd_rank", late ? Level::kCrit : Level::kWarn,
        fmt::format("rank {} (GPU {}, pid {}) is the odd one", odd->rank, odd->device, odd->pid));
    j.next = fmt::format("py-spy dump --pid {}", odd->pid);
    all->push_back(j);
    return;
  }
  add_straggler(c, all);
}

}  // namespace

Judgements judge_hardware(const Case& c) {
  Judgements all;
  const auto& devices = c.series.views.back().devices;
  if (devices && !devices->empty()) {
    add_faults(c, &all);
    add_power(c, &all);
    add_slow_reasons(c, &all);
    add_memory(c, &all);
    add_rank_without_memory(c, &all);
    add_unaccounted(c, &all);
    add_neighbours(c, &all);
    add_spread(c, &all);
  } else if (!devices && !c.series.live) {
    all.push_back(hardware_judgement("power", Level::kUnknown, "no view of the GPUs"));
  }
  return all;
}

}  // namespace eaglet::monitor
