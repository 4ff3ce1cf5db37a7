#pragma once

#include "monitor/idle_power.h"
#include "monitor/kernel_log.h"
#include "monitor/package_energy.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// What a living run shows only over minutes, or outside its own files: growth of memory, energy, the
/// kernel's log, the report of its served draft.
class SlowSignals {
 public:
  explicit SlowSignals(const std::string& kernel_log = "/dev/kmsg",
                       const std::string& power = "/sys/class/powercap")
      : kernel_(kernel_log), package_(power) {}

  /// `began_since_boot`: when the run's first process started; lines before it are another run's.
  void add(double began_since_boot, RunView* view, RunSeries* series);
  /// Reads report.json of the run directory when it is new (its draft was served and measured).
  void read_report(const std::string& output_dir, RunSeries* series);

 private:
  KernelLog kernel_;
  PackageEnergy package_;
  IdlePower idle_;
  std::vector<KernelLine> lines_;
  double next_kernel_ = -1, next_slow_ = -1, report_time_ = kNotKnown;
};

/// Sums over the view: what a SlowPoint keeps.
SlowPoint slow_point_of(const RunView& view, const LogFacts& log);

}  // namespace eaglet::monitor
