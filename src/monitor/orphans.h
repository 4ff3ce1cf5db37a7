#pragma once

#include <string>
#include <vector>

#include "monitor/devices.h"
#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// A process that a dead run left behind, with the proof.
struct Orphan {
  std::int64_t pid = -1, user = -1;
  double start_time = kNotKnown, age_seconds = kNotKnown, rss_bytes = 0, device_bytes = 0;
  std::string run_id, command, proof;  // "its parent is gone (now 1), its session leader 4100 is dead"
  std::string holds;                   // "/dev/nvidia0, 3.20 GB"
  bool ours = false;                   // same user
};

/// Device memory that no listed process owns.
struct StaleMemory {
  std::int64_t device = -1;
  double bytes = 0;
  std::string why;
};

struct OrphanReport {
  std::vector<Orphan> orphans;
  std::vector<StaleMemory> stale;
  std::vector<std::string> notes;  // leftovers in /dev/shm, what could not be seen
};

/// Looks through all processes: workers and processes of a run id whose run is gone, older than
/// `least_age_seconds`, that hold a GPU, much memory or a port. A run started with nohup is no orphan.
OrphanReport find_orphans(const ProcReader& reader, DeviceSource* devices, double least_age_seconds);

/// Ends this user's orphans of that run id: each is checked again by (pid, start time) through a pidfd, gets
/// TERM, and after `patience_seconds` KILL. Returns those that are still there.
std::vector<Orphan> end_orphans(const std::vector<Orphan>& orphans, const std::string& run_id,
                                double patience_seconds, const ProcReader& reader);

}  // namespace eaglet::monitor
