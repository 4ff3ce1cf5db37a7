#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/kept_tables.h"
#include "monitor/view.h"

namespace eaglet::monitor {

/// Where the kernel's tables are read from; tests point it at a made-up tree.
struct HostRoots {
  std::string proc = "/proc", cgroup = "/sys/fs/cgroup", shm = "/dev/shm";
};

/// Reads processes. Everything under /proc/PID may vanish between two calls: that is "gone", never an error;
/// what another user's process hides is unknown.
class ProcReader {
 public:
  explicit ProcReader(HostRoots roots = {}) : roots_(std::move(roots)) {}
  const HostRoots& roots() const { return roots_; }

  std::vector<std::int64_t> all_pids() const;
  /// State, parents, CPU time, start: one small file. nullopt when the process is gone. `kept`: for who asks
  /// each second.
  std::optional<ProcessView> basics(std::int64_t pid, KeptTables* kept = nullptr) const;
  /// Adds what costs more files: command line, I/O counters, run-queue wait, wait place.
  void details(ProcessView* process, KeptTables* kept = nullptr) const;
  /// What of it is swapped out: its table is the dearest one.
  double swapped_bytes(std::int64_t pid) const;
  /// Start values of the environment; empty when it may not be read. Values that look like secrets are
  /// hidden.
  std::map<std::string, std::string> environment(std::int64_t pid) const;
  std::string command(std::int64_t pid) const;
  std::string working_directory(std::int64_t pid) const;

  struct OpenFile {
    int fd = -1;
    std::string path;  // "/x/train.log", "pipe:[123]", "/x/train.log (deleted)"
    bool writable = false;
    double position = kNotKnown;
  };
  /// At most `most` descriptors, lowest first; none when they may not be read.
  std::vector<OpenFile> open_files(std::int64_t pid, std::size_t most = 512) const;

  /// All of a process's map table; empty when it may not be read, or is longer than any sensible one.
  std::string map_table(std::int64_t pid) const;

  /// Memory, cores, container limits of the process's cgroup, shared memory.
  HostView host(std::int64_t pid) const;
  double uptime_seconds() const;

 private:
  void read_cgroup(std::int64_t pid, HostView* host) const;
  /// The table's text; what it was read into, when nothing is kept, is `scratch`.
  std::string_view table(std::int64_t pid, KeptTables::Table which, KeptTables* kept,
                         std::string* scratch) const;
  HostRoots roots_;
};

/// The whole small file, or "" when it cannot be read: for kernel tables only.
std::string read_small(const std::string& path);
/// Where a symbolic link points, or "".
std::string read_link(const std::string& path);

}  // namespace eaglet::monitor
