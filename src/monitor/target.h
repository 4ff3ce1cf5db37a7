#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "monitor/http_get.h"
#include "monitor/proc_reader.h"

namespace eaglet::monitor {

/// A run on this machine, found by itself.
struct Target {
  std::string name;
  std::vector<std::int64_t> roots;  // topmost processes: launcher or rank; empty when none lives
  std::string log_path, output_dir, config_path, status_path, launch_path;
  std::string tracker_path;            // Trackio's file, when it was named
  std::vector<std::string> databases;  // SQLite files its processes have open for writing
  bool log_deleted = false;            // the log was removed while open
  /// Where the log was found: what a rank prints is better than what its launcher does, what was named best.
  enum class LogFrom { kNamed, kRank, kLauncher } log_from = LogFrom::kNamed;
  std::int64_t log_pid = -1;         // whose output it is
  HttpAddress server;                // of a server that was named by its address; no host: none
  std::map<std::string, int> pipes;  // followed in vain, and how often
};

/// What a process was started as, and has open.
struct ProcessOpen {
  std::int64_t pid = -1;
  std::string command;
  std::vector<ProcReader::OpenFile> files;
};

/// What `text` means: a process id, a run directory, a log file, Trackio's file, a server's address, or a
/// name (a run id of `eaglet launch`, else a word of a command line). kNotFound when nothing fits; kUsage
/// with the choices when a name fits several runs.
Result<Target> resolve_target(const std::string& text, const ProcReader& reader);

/// Root and everything below it, also what was re-parented but kept the session or the run id.
std::vector<std::int64_t> run_tree(const std::vector<std::int64_t>& roots, const ProcReader& reader);

/// Fills log, output directory, configuration and status file from the open files, flags and working
/// directory of processes of the run.
void find_files(const ProcReader& reader, const std::vector<ProcessOpen>& processes, Target* target);
/// The same from a directory alone.
void find_files_in(const std::string& directory, Target* target);

}  // namespace eaglet::monitor
