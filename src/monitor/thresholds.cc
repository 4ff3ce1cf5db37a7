#include "monitor/thresholds.h"

#include <cmath>
#include <vector>

#include "base/files.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {

#define EAGLET_THRESHOLD(name) \
  { #name, &Thresholds::name }

const std::vector<ThresholdEntry>& threshold_entries() {
  static const std::vector<ThresholdEntry> all = {EAGLET_THRESHOLD(window_seconds),
                                                  EAGLET_THRESHOLD(slow_window_seconds),
                                                  EAGLET_THRESHOLD(idle_busy_pct),
                                                  EAGLET_THRESHOLD(busy_pct),
                                                  EAGLET_THRESHOLD(spin_r),
                                                  EAGLET_THRESHOLD(fill_r),
                                                  EAGLET_THRESHOLD(idle_power_fraction),
                                                  EAGLET_THRESHOLD(idle_cores),
                                                  EAGLET_THRESHOLD(start_seconds),
                                                  EAGLET_THRESHOLD(stall_min_seconds),
                                                  EAGLET_THRESHOLD(stall_step_factor),
                                                  EAGLET_THRESHOLD(stall_gap_factor),
                                                  EAGLET_THRESHOLD(compile_seconds),
                                                  EAGLET_THRESHOLD(recompile_seconds),
                                                  EAGLET_THRESHOLD(load_seconds),
                                                  EAGLET_THRESHOLD(save_seconds),
                                                  EAGLET_THRESHOLD(drain_seconds),
                                                  EAGLET_THRESHOLD(validate_seconds),
                                                  EAGLET_THRESHOLD(validate_factor),
                                                  EAGLET_THRESHOLD(load_bytes_per_second),
                                                  EAGLET_THRESHOLD(save_bytes_per_second),
                                                  EAGLET_THRESHOLD(quiet_bytes_per_second),
                                                  EAGLET_THRESHOLD(settle_seconds),
                                                  EAGLET_THRESHOLD(artifact_seconds),
                                                  EAGLET_THRESHOLD(orphan_age_seconds),
                                                  EAGLET_THRESHOLD(stale_gpu_bytes),
                                                  EAGLET_THRESHOLD(shared_busy_warn),
                                                  EAGLET_THRESHOLD(pcie_warn),
                                                  EAGLET_THRESHOLD(memory_change_bytes),
                                                  EAGLET_THRESHOLD(disk_free_checkpoints),
                                                  EAGLET_THRESHOLD(disk_free_warn),
                                                  EAGLET_THRESHOLD(memory_crit),
                                                  EAGLET_THRESHOLD(shm_crit),
                                                  EAGLET_THRESHOLD(gpu_memory_warn),
                                                  EAGLET_THRESHOLD(gpu_memory_room),
                                                  EAGLET_THRESHOLD(run_wait_warn),
                                                  EAGLET_THRESHOLD(throttled_warn),
                                                  EAGLET_THRESHOLD(memory_pressure_warn),
                                                  EAGLET_THRESHOLD(peak_tflops),
                                                  EAGLET_THRESHOLD(mfu_warn),
                                                  EAGLET_THRESHOLD(mfu_power_remark),
                                                  EAGLET_THRESHOLD(mfu_power_factor),
                                                  EAGLET_THRESHOLD(data_size_warn),
                                                  EAGLET_THRESHOLD(cache_warn),
                                                  EAGLET_THRESHOLD(server_silent_seconds),
                                                  EAGLET_THRESHOLD(fill_warn),
                                                  EAGLET_THRESHOLD(fill_headline),
                                                  EAGLET_THRESHOLD(coverage_warn),
                                                  EAGLET_THRESHOLD(first_loss_lo),
                                                  EAGLET_THRESHOLD(first_loss_hi),
                                                  EAGLET_THRESHOLD(warm_loss_max),
                                                  EAGLET_THRESHOLD(trend_points),
                                                  EAGLET_THRESHOLD(trend_steps),
                                                  EAGLET_THRESHOLD(diverge_factor),
                                                  EAGLET_THRESHOLD(diverge_points),
                                                  EAGLET_THRESHOLD(diverge_rise),
                                                  EAGLET_THRESHOLD(spike_z),
                                                  EAGLET_THRESHOLD(spike_window),
                                                  EAGLET_THRESHOLD(fetch_warn),
                                                  EAGLET_THRESHOLD(fetch_crit),
                                                  EAGLET_THRESHOLD(speed_drop),
                                                  EAGLET_THRESHOLD(tau_drop),
                                                  EAGLET_THRESHOLD(straggler_ratio),
                                                  EAGLET_THRESHOLD(lr_tolerance),
                                                  EAGLET_THRESHOLD(growth_warn),
                                                  EAGLET_THRESHOLD(growth_seconds),
                                                  EAGLET_THRESHOLD(energy_rise),
                                                  EAGLET_THRESHOLD(defunct_seconds),
                                                  EAGLET_THRESHOLD(rank_gone_seconds),
                                                  EAGLET_THRESHOLD(error_seconds),
                                                  EAGLET_THRESHOLD(launch_core),
                                                  EAGLET_THRESHOLD(plateau_steps),
                                                  EAGLET_THRESHOLD(plateau_gain),
                                                  EAGLET_THRESHOLD(clip_share),
                                                  EAGLET_THRESHOLD(alert_seconds),
                                                  EAGLET_THRESHOLD(served_min),
                                                  EAGLET_THRESHOLD(trained_min),
                                                  EAGLET_THRESHOLD(accuracy_steps),
                                                  EAGLET_THRESHOLD(accuracy_min)};
  return all;
}

// Short names, with short units.
struct ShortName {
  const char* name;
  double Thresholds::*at;
  double unit;
};
constexpr ShortName kShortNames[] = {
    {"idle_power_frac", &Thresholds::idle_power_fraction, 1},
    {"stall_min_s", &Thresholds::stall_min_seconds, 1},
    {"compile_s", &Thresholds::compile_seconds, 1},
    {"recompile_s", &Thresholds::recompile_seconds, 1},
    {"load_MBps", &Thresholds::load_bytes_per_second, 1e6},
    {"save_MBps", &Thresholds::save_bytes_per_second, 1e6},
    {"drain_s", &Thresholds::drain_seconds, 1},
    {"artifact_s", &Thresholds::artifact_seconds, 1},
    {"settle_s", &Thresholds::settle_seconds, 1},
    {"orphan_age_s", &Thresholds::orphan_age_seconds, 1},
    {"stale_gpu_GB", &Thresholds::stale_gpu_bytes, 1e9},
    {"disk_free_ckpts", &Thresholds::disk_free_checkpoints, 1},
    {"mem_crit_pct", &Thresholds::memory_crit, 0.01},
    {"shm_crit_pct", &Thresholds::shm_crit, 0.01},
};

#undef EAGLET_THRESHOLD

namespace {

/// "15,60,300": the fast window, in which ranks that end may end together and an error may be followed by
/// another word; the usual one; the slow one.
Status set_windows(const std::string& text, Thresholds* thresholds) {
  std::vector<double> seconds;
  for (const std::string_view word : split(text, ',')) seconds.push_back(number(word).value_or(std::nan("")));
  if (seconds.size() != 3 ||
      !(0 < seconds[0] && seconds[0] <= seconds[1] && seconds[1] <= seconds[2] && std::isfinite(seconds[2])))
    return Status(StatusCode::kConfig,
                  "'windows_s=" + text + "' is not three times in seconds, short to long", {},
                  "for example windows_s=15,60,300");
  thresholds->rank_gone_seconds = thresholds->error_seconds = seconds[0];
  thresholds->window_seconds = seconds[1];
  thresholds->slow_window_seconds = seconds[2];
  return {};
}

}  // namespace

Status set_threshold(const std::string& assignment, Thresholds* thresholds) {
  const std::size_t equals = assignment.find('=');
  const std::string name(trim(assignment.substr(0, equals)));
  if (name == "windows_s" && equals != std::string::npos)
    return set_windows(assignment.substr(equals + 1), thresholds);
  const auto value = equals == std::string::npos ? std::nullopt : number(assignment.substr(equals + 1));
  if (!value || !std::isfinite(*value))
    return Status(StatusCode::kConfig, "'" + assignment + "' is not name=number", {},
                  "for example spin_r=0.2; docs/watch.md lists the names");
  for (const ThresholdEntry& entry : threshold_entries()) {
    if (name != entry.name) continue;
    thresholds->*entry.at = *value;
    return {};
  }
  for (const ShortName& entry : kShortNames) {
    if (name != entry.name) continue;
    thresholds->*entry.at = *value * entry.unit;
    return {};
  }
  return Status(StatusCode::kConfig, "no threshold is called '" + name + "'", {},
                "docs/watch.md lists the names");
}

Status read_thresholds(const std::string& path, Thresholds* thresholds) {
  EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  int line_number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++line_number;
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const Status status = set_threshold(std::string(line), thresholds);
    if (!status.ok()) return status.at(path + ", line " + std::to_string(line_number));
  }
  return {};
}

}  // namespace eaglet::monitor
