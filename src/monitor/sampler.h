#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "monitor/devices.h"
#include "monitor/event_tail.h"
#include "monitor/log_tail.h"
#include "monitor/metric_tables.h"
#include "monitor/open_data.h"
#include "monitor/own_devices.h"
#include "monitor/proc_reader.h"
#include "monitor/server_metrics.h"
#include "monitor/slow_signals.h"
#include "monitor/target.h"
#include "monitor/trackio_tail.h"

namespace eaglet::monitor {

/// Samples a living run again and again and keeps the series a verdict is made from: each second of the last
/// minute, each tenth second of the quarter hour before it. Memory is bounded. Not thread-safe.
class Sampler {
 public:
  /// `devices` may be null. Reads nothing yet.
  Sampler(Target target, ProcReader reader, DeviceSource* devices);
  ~Sampler();

  /// One more view. Drops the older ones when the clocks show that the machine was paused.
  void sample();
  const RunSeries& series() const { return series_; }
  const Target& target() const { return target_; }
  /// Whether nothing but files is known: no process of this machine belongs to it, which proves nothing about
  /// a run that may live elsewhere, and does where its files name another machine.
  bool log_only() const;
  /// Whether a process of the run is alive, by the last view.
  bool alive() const;
  /// Gives the series away for a longer look at one moment: keeps only the last view.
  void forget_history();

 private:
  struct Known;
  void find_tree(double now);
  void read_processes(RunView* view);
  void look_closer(const RunView& view, ProcessView* process, Known* known);
  void look_inside(const RunView& view, const ProcessView& process, Known* known);
  void read_files(RunView* view);
  void look_for_data(double now);
  void look_for_room(RunView* view);
  void look_for_other_host(RunView* view);
  void read_log(RunView* view);
  void read_text_log(RunView* view);
  void read_trackio(double now);
  void read_config();
  void ask_server(RunView* view);
  struct Known {  // what does not change in a process's life
    double start_time = kNotKnown;
    std::string name, command, run_id;
    std::int64_t rank = -1;
    bool holds_device = false, files_known = false;
    double swap_bytes = kNotKnown;
    double looked_inside = kNotKnown, cpu_seconds = kNotKnown;  // when last, and what it had used by then
  };

  Target target_;
  ProcReader reader_;
  DeviceSource* devices_;
  RunSeries series_;
  std::unique_ptr<LogTail> log_;
  EventTail events_;
  MetricTables tables_;
  TrackioTail trackio_;
  std::string trackio_path_;
  SlowSignals slow_;
  ServerLook server_;
  OwnDevices own_devices_;
  std::set<std::string> visible_devices_;  // as CUDA_VISIBLE_DEVICES of its processes names them
  double first_start_ = kNotKnown;         // of the run's first process, in seconds since boot
  std::set<std::int64_t> tree_;
  std::map<std::int64_t, Known> known_;
  std::vector<FileView> files_;
  DiskRoom disk_, data_disk_;
  KeptTables tables_of_processes_;
  std::vector<ProcessOpen> opened_;  // of those that were looked into since the last look for files
  bool scanned_ = false;
  double log_position_ = kNotKnown;  // of the descriptor by which the run writes its log
  double next_scan_ = -1, next_trackio_ = -1;
  DataLookPause data_pause_;
};

/// Drops views that are too old, and of those of the minutes before the last one all but one in ten seconds.
void thin_views(std::vector<RunView>* views);

}  // namespace eaglet::monitor
