#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet::monitor {

/// Every number a judgement compares with. Starting values of ours; a settings file or --set changes them.
struct Thresholds {
  double window_seconds = 60, slow_window_seconds = 300;
  double idle_busy_pct = 5, busy_pct = 90;
  double spin_r = 0.15, fill_r = 0.5;  // share of the power span above idle
  double idle_power_fraction = 0.10;   // of the limit, where no idle power was seen
  double idle_cores = 0.05;            // a whole tree below this does nothing
  double start_seconds = 120, stall_min_seconds = 60, stall_step_factor = 10, stall_gap_factor = 3;
  double compile_seconds = 900, recompile_seconds = 600, load_seconds = 180, save_seconds = 120;
  double drain_seconds = 600, validate_seconds = 600, validate_factor = 2;
  double load_bytes_per_second = 100e6, save_bytes_per_second = 50e6, quiet_bytes_per_second = 10e3;
  double settle_seconds = 30, artifact_seconds = 120, orphan_age_seconds = 10;
  double stale_gpu_bytes = 1e9, memory_change_bytes = 64e6;
  double shared_busy_warn = 10;  // percent of a GPU's time that another program may take
  double pcie_warn = 0.7;        // of what the link carries one way; packets have heads, so nothing reaches 1
  double disk_free_checkpoints = 2, disk_free_warn = 0.10;
  double memory_crit = 0.95, shm_crit = 0.90, gpu_memory_warn = 0.97, gpu_memory_room = 0.6;
  double run_wait_warn = 0.20, throttled_warn = 0.10;
  double memory_pressure_warn = 0.10;  // of the time something waits for memory to be freed
  double peak_tflops = 0;              // of one rank's device, for MFU; 0: by the device's name
  double mfu_warn = 0.15;
  double mfu_power_remark = 1.5, mfu_power_factor = 4;  // MFU and the power share apart by that factor
  double data_size_warn = 0.25;
  double cache_warn = 0.95;  // of a server's memory for keys and values, with requests that wait for it
  double server_silent_seconds = 15;
  double fill_warn = 0.7, fill_headline = 0.5, coverage_warn = 0.95;
  double first_loss_lo = 0.85, first_loss_hi = 1.25, warm_loss_max = 0.6;
  double trend_points = 10, trend_steps = 300, diverge_factor = 1.3, diverge_points = 50;
  double diverge_rise = 0.1;  // nats; a loss that is nearly 0 rises 1.3-fold by noise alone
  double spike_z = 6, spike_window = 128;
  double fetch_warn = 0.1, fetch_crit = 0.3, speed_drop = 0.2, tau_drop = 0.03, straggler_ratio = 1.5;
  double lr_tolerance = 0.02;
  double growth_warn = 0.01, growth_seconds = 1800, energy_rise = 0.2;
  double defunct_seconds = 10;    // a parent collects its child within that
  double rank_gone_seconds = 15;  // ranks that end do not all end at once
  double error_seconds = 15;      // so long an error is the log's last word before it is one
  double launch_core = 0.85;      // a rank that keeps one core this busy is bound by its own launches
  double plateau_steps = 1000, plateau_gain = 0.005, clip_share = 0.9;
  double alert_seconds = 600;  // so long an alert of the trainer's own code is news
  double served_min = 1.2, trained_min = 2, accuracy_steps = 500, accuracy_min = 0.1;
};

struct ThresholdEntry {
  const char* name;
  double Thresholds::*at;
};
/// All of them, in the order of docs/watch.md.
const std::vector<ThresholdEntry>& threshold_entries();

/// "name=value" or "name = value"; also by a short name: drain_s, load_MBps, mem_crit_pct. kConfig names the
/// nearest thing to do.
Status set_threshold(const std::string& assignment, Thresholds* thresholds);
/// A file of such lines; '#' begins a comment. kNotFound, kConfig with the line number.
Status read_thresholds(const std::string& path, Thresholds* thresholds);

}  // namespace eaglet::monitor
