#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/json.h"
#include "monitor/log_facts.h"
#include "runlog/status_file.h"

namespace eaglet::monitor {

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// One process at one moment. NaN, -1, '?' and "" mean not known. Byte and second counters run since its
/// start.
struct ProcessView {
  std::int64_t pid = -1, parent = -1, session = -1, group = -1, user = -1;
  double start_time = kNotKnown;  // in ticks since boot: with the pid, who it is
  char state = '?';               // R S D Z T t X, as in /proc/PID/stat
  std::string name, command;      // comm (15 bytes), command line
  double cpu_seconds = kNotKnown, elapsed_seconds = kNotKnown;
  double run_wait_seconds = kNotKnown;   // runnable, but not running
  double disk_wait_seconds = kNotKnown;  // for block devices; stays 0 where the kernel does not count it
  double rss_bytes = kNotKnown, swap_bytes = kNotKnown;
  double read_bytes = kNotKnown, read_chars = kNotKnown;    // from disk; by read calls (page cache included)
  double write_bytes = kNotKnown, write_chars = kNotKnown;  // the same for writes
  double major_faults = kNotKnown;
  std::string wait_place;  // where in the kernel the main thread waits
  std::int64_t rank = -1;
  std::string run_id;
  bool holds_device = false;  // has a GPU's device file open
  bool files_known = false;   // its descriptors could be read: holds_device is the truth
};

/// One GPU at one moment.
struct DeviceView {
  std::int64_t index = -1;
  std::string id, name;  // UUID; "NVIDIA H200"
  double busy_pct = kNotKnown, power_w = kNotKnown, limit_w = kNotKnown, energy_j = kNotKnown;
  double used_bytes = kNotKnown, total_bytes = kNotKnown, reserved_bytes = kNotKnown;
  double celsius = kNotKnown, slowdown_celsius = kNotKnown;
  double clock_mhz = kNotKnown, max_clock_mhz = kNotKnown;
  double tensor_pct = kNotKnown;
  double link_width = kNotKnown, max_link_width = kNotKnown;  // PCIe lanes
  double link_generation = kNotKnown, max_link_generation = kNotKnown;
  double pcie_in = kNotKnown, pcie_out = kNotKnown;  // bytes/s, from the machine and to it
  double ecc_uncorrected = kNotKnown, remap_pending = kNotKnown;
  std::optional<std::uint64_t> slow_reasons;  // NVML's bits
  std::vector<std::int64_t> xids;
  bool lost = false;  // off the bus, or needs a reset
  bool mig = false;   // cut into instances: utilisation is not told
};

struct DeviceProcess {
  std::int64_t pid = -1, device = -1;
  double bytes = kNotKnown;
  double busy_pct = kNotKnown;  // of the time, its kernels ran there
};

struct FileView {
  double mtime = kNotKnown, bytes = kNotKnown;
  std::string path;
  std::int64_t step = -1;  // of the checkpoint it is part of, when a file beside it says so and not its path
};

/// Room on one file system (disk_room.h).
struct DiskRoom {
  std::string path;
  double free = kNotKnown, total = kNotKnown;                // bytes
  double inodes_free = kNotKnown, inodes_total = kNotKnown;  // the same for the number of files
};

/// What limits the run from outside.
struct HostView {
  double cores = kNotKnown, quota_cores = kNotKnown, throttled_seconds = kNotKnown;
  double memory_total = kNotKnown, memory_available = kNotKnown;
  // Without the pages of files, which the kernel gives back: a run that reads much fills a container with
  // them.
  double cgroup_bytes = kNotKnown;
  double cgroup_limit = kNotKnown, oom_kills = kNotKnown;
  // Pressure (PSI), seconds since boot: some task waited for it; all that were not idle did.
  double cpu_some_seconds = kNotKnown, cpu_full_seconds = kNotKnown;
  double memory_some_seconds = kNotKnown, memory_full_seconds = kNotKnown;
  bool pressure_of_container = false;  // of the run's own cgroup, not of the whole machine
  double network_bytes = kNotKnown;    // in and out, without the loopback
  double shm_bytes = kNotKnown, shm_total = kNotKnown;
  DiskRoom disk;                      // where checkpoints go
  DiskRoom data_disk;                 // where the data lies, if that is another file system
  double package_joules = kNotKnown;  // of the processors, since the first view; not where it may not be read
};

/// What grows slowly, noted each half minute for two hours.
struct SlowPoint {
  double seconds = 0;                                          // by the monotonic clock
  double rss_bytes = kNotKnown;                                // of the whole tree
  double device_bytes = kNotKnown, device_joules = kNotKnown;  // over all devices
  double tokens_per_second = kNotKnown;                        // as the log last said
};

/// What the kernel's log tells of a run.
struct KernelLine {
  enum class Kind { kKilledForMemory, kXid, kHungTask } kind = Kind::kXid;
  double since_boot_seconds = kNotKnown;
  std::int64_t pid = -1, code = -1;  // code: the Xid
  std::string name, device, text;    // of the process; "PCI:0000:3b:00"; the whole line
};

/// Vocabulary maps and one data file of the run (data_look.h). -1 and "": not seen.
struct DataSeen {
  std::string maps_path, states_path;
  std::int64_t draft_ids = -1;   // length of d2t
  std::int64_t target_ids = -1;  // true entries of t2d
  bool maps_agree = false;       // ids ascend, and each is one that t2d has
  std::int64_t layers = -1, hidden = -1;
  std::int64_t rows = -1, tokens = -1;  // of that file: rows of states, token ids beside them
  std::string looked_at;                // the checkpoint whose maps were read last
  bool looked = false;
  std::string looked_folder;  // of open files, when it was looked at last
};

/// The folder that a run's data files lie in, as its open files show (open_data.h). "": not seen.
struct DataFrom {
  std::string folder, filesystem;  // "NFS", "Lustre", ...; "": local
  std::int64_t files = 0;          // of it, open or mapped at that moment
};

/// What the trainer's own code raised in its tracker.
struct TrackerAlert {
  std::string level, title, text;  // level: "info", "warn", "error"
  std::int64_t step = -1;
  double time = kNotKnown;  // seconds since 1970
};

/// What a tracker noted of the run's machine at one moment (trackio_machine.h).
struct TrackedMoment {
  double time = kNotKnown;  // seconds since 1970
  std::vector<DeviceView> devices;
  double memory_share = kNotKnown, memory_total = kNotKnown;  // of the machine; total in bytes
  double cpu_share = kNotKnown;
};

/// What a server of a language model says of itself (server_metrics.h). Counters run since its start.
struct ServerMoment {
  bool known = false;
  std::string kind, trouble;                        // "vLLM"; why it is not known
  double running = kNotKnown, waiting = kNotKnown;  // requests
  double prompt_tokens = kNotKnown, generated_tokens = kNotKnown, passes = kNotKnown;
  double drafts = kNotKnown, accepted_tokens = kNotKnown;  // of speculative decoding
  double accepted_length = kNotKnown;                      // tokens per pass, where it says it itself
  double cache_share = kNotKnown;                          // of the memory for keys and values
};

/// The port by which ranks find each other, and who listens there (port_look.h).
struct PortSeen {
  std::int64_t port = -1;    // MASTER_PORT of the run; -1: it has none, or not on this machine
  bool taken = false;        // somebody listens who is not of this run
  std::int64_t pid = -1;     // that process; -1: another user's, or not found
  std::int64_t user = -1;    // whose socket it is
  std::string run_id, name;  // of that process
};

/// Another machine that the files of a run name, when nothing of it lives on this one (other_host.h).
struct OtherHost {
  std::string name, here;  // that machine, this one; no name: none
  std::string proof;       // which file says so
};

/// How far the log was at one moment.
struct LogMoment {
  bool known = false;
  double bytes = kNotKnown, mtime = kNotKnown;
  double position = kNotKnown;  // of the writer's descriptor: local truth when the file lies on a network
  std::int64_t records = 0, last_step = -1;
  double metric_time = kNotKnown;  // of the newest record of a tracker, where metrics come from one
};

/// The run at one moment. What is absent is unknown.
struct RunView {
  double wall = kNotKnown;       // seconds since 1970, for display
  double monotonic = kNotKnown;  // for intervals; saved views have only the clock
  std::optional<std::vector<ProcessView>> processes;
  bool only_this_run = false;  // all of them belong to the run (a saved process table may hold others)
  std::optional<std::vector<DeviceView>> devices;
  std::optional<std::vector<DeviceProcess>> device_processes;
  std::optional<std::vector<FileView>> files;  // of the output directory
  std::optional<RunStatus> status;             // a run of ours tells itself
  double status_updated = kNotKnown;
  HostView host;
  LogMoment log;
  std::optional<ServerMoment> server;  // in the views in which it was asked
};

/// Everything a verdict is made from: views oldest first, and what the log and the configuration say by now.
struct RunSeries {
  std::string name;
  std::vector<RunView> views;
  LogFacts log;
  bool log_known = false;
  std::string log_path, output_dir;
  bool log_deleted = false;   // what the run prints goes to a file that has no name any more
  std::string log_read_note;  // "log of 200 MB: the first 0.3 and the last 4 MB were read"
  std::optional<Json> config;
  std::string config_path;
  double config_mtime = kNotKnown;
  std::string config_error;                        // it is there and cannot be read as one
  std::string train_command;                       // as speculators wrote it beside its configuration
  std::optional<Json> tracker_config;              // as it was given to its tracker
  std::vector<TrackerAlert> alerts;                // the newest ones, oldest first
  std::vector<TrackedMoment> tracked;              // of the run's machine, oldest first
  std::map<std::string, std::string> environment;  // of rank 0, secrets left out
  std::optional<Json> launch_record;               // how a run of `eaglet launch` began and ended
  bool live = false;                               // from this machine now, not from saved views
  bool in_container = false;
  std::vector<SlowPoint> slow;
  std::optional<std::vector<KernelLine>> kernel;  // since the run began; nullopt: not readable here
  DataSeen data;
  DataFrom data_from;
  PortSeen port;
  OtherHost other_host;
  std::map<std::int64_t, double>
      idle_watts;                        // by device: lowest minute seen without a process (idle_power.h)
  double served_acceptance = kNotKnown;  // tokens per pass on a server, as the run's report says
  double run_began = kNotKnown;          // wall clock of the root process's start
};

/// Seconds between two views: by the monotonic clock where both have it, else by the clock, else by how much
/// older the processes became; 0 when nothing tells.
double seconds_between(const RunView& earlier, const RunView& later);
/// Whether the machine was paused between two views, or its clock was set: what was before does not compare.
bool was_paused(const RunView& earlier, const RunView& later);
/// A string as it may be shown: values of names that look like secrets are hidden.
bool looks_secret(const std::string& name);

}  // namespace eaglet::monitor
