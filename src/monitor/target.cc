#include "monitor/target.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/host_name.h"
#include "formats/json.h"
#include "monitor/listening.h"
#include "monitor/roles.h"
#include "monitor/run_config.h"
#include "monitor/text_scan.h"
#include "runlog/status_file.h"

namespace eaglet::monitor {
namespace {

using Pids = std::vector<std::int64_t>;

std::string absolute_path(const std::string& path, const std::string& base) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::path(base) / path;
  const auto real = std::filesystem::weakly_canonical(whole, error);
  return error ? whole.string() : real.string();
}

std::string name_of(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

bool is_log_name(const std::string& name) {
  return name == "log.jsonl" || name == "nohup.out" || name == "stdout" || name == "stderr" ||
         (name.size() > 4 && name.substr(name.size() - 4) == ".log") || contains(name, "train");
}

/// From a rank up to the launcher that started it, as long as parents are launchers or the same program.
std::int64_t topmost(std::int64_t pid, const ProcReader& reader) {
  for (int depth = 0; depth < 16; ++depth) {
    const auto process = reader.basics(pid);
    if (!process || process->parent <= 1) return pid;
    auto parent = reader.basics(process->parent);
    if (!parent) return pid;
    parent->command = reader.command(process->parent);
    const bool same = !parent->command.empty() && parent->command == reader.command(pid);
    if (!is_launcher(*parent) && !same) return pid;
    pid = process->parent;
  }
  return pid;
}

/// Ourselves and what started us: a name on our own command line is no run.
std::set<std::int64_t> own_line(const ProcReader& reader) {
  std::set<std::int64_t> line;
  for (std::int64_t pid = ::getpid(); pid > 1 && line.insert(pid).second;) {
    const auto process = reader.basics(pid);
    if (!process) break;
    pid = process->parent;
  }
  return line;
}

void add_unique(Pids* pids, std::int64_t pid) {
  if (std::find(pids->begin(), pids->end(), pid) == pids->end()) pids->push_back(pid);
}

Pids holders_of(const std::string& path, bool directory, const ProcReader& reader) {
  const std::string real = absolute_path(path, std::filesystem::current_path().string());
  const auto own = own_line(reader);
  Pids found;
  for (const std::int64_t pid : reader.all_pids()) {
    if (own.count(pid) != 0) continue;
    bool holds = false;
    for (const auto& file : reader.open_files(pid)) {
      if (!directory && file.path == real && (file.writable || file.fd <= 2)) holds = true;
      if (directory && file.writable && starts_with(file.path, real + "/")) holds = true;
    }
    if (!holds && directory) {
      const std::string command = reader.command(pid);
      const std::string base = command.empty() ? std::string() : reader.working_directory(pid);
      for (const auto& [key, value] : command_flags(command))
        holds = holds || (contains(key, "dir") && absolute_path(value, base) == real);
    }
    if (holds) add_unique(&found, topmost(pid, reader));
  }
  return found;
}

/// The process that a launch record names, when it is still the same.
void take_launched_pid(const ProcReader& reader, Target* target) {
  if (target->launch_path.empty()) return;
  const auto record = read_json_file(target->launch_path);
  if (!record.ok() || !record->is_object() || !record->contains("pid") ||
      !(*record)["pid"].is_number_integer())
    return;
  const auto pid = (*record)["pid"].get<std::int64_t>();
  const auto process = reader.basics(pid);
  const Json start = record->value("start_time_ticks", Json(nullptr));
  if (process && start.is_number() && process->start_time == start.get<double>())
    add_unique(&target->roots, pid);
}

/// A process whose own pid and start the file remembers.
void take_status_pid(const ProcReader& reader, Target* target) {
  if (target->status_path.empty()) return;
  const auto status = read_status(target->status_path);
  if (!status.ok() || !(status->host.empty() || same_host(status->host, host_name()))) return;
  const auto process = reader.basics(status->pid);
  // A pid alone is no identity: the process must have begun before the status was first written.
  if (!process) return;
  const double up = reader.uptime_seconds(), start = process->start_time / 100;
  struct stat info = {};
  if (::stat(target->status_path.c_str(), &info) != 0) return;
  const double age = std::difftime(::time(nullptr), info.st_mtime);
  if (up - start + 1 >= age) add_unique(&target->roots, topmost(status->pid, reader));
}

Result<Target> by_directory(const std::string& text, const ProcReader& reader) {
  Target target;
  const std::string path = absolute_path(text, std::filesystem::current_path().string());
  target.name = name_of(path);
  find_files_in(path, &target);
  take_launched_pid(reader, &target);
  if (target.roots.empty()) take_status_pid(reader, &target);
  if (target.roots.empty() && target.launch_path.empty()) target.roots = holders_of(path, true, reader);
  return target;
}

Result<Target> by_log(const std::string& text, const ProcReader& reader) {
  Target target;
  target.log_path = absolute_path(text, std::filesystem::current_path().string());
  target.name = name_of(target.log_path);
  target.roots = holders_of(target.log_path, false, reader);
  const std::string folder = std::filesystem::path(target.log_path).parent_path().string();
  const std::string log = target.log_path;
  if (path_exists(folder + "/status.json") || path_exists(folder + "/train_config.json") ||
      path_exists(folder + "/launch.json"))
    find_files_in(folder, &target);
  target.log_path = log;
  return target;
}

/// Trackio's file of a run: it may be of another machine, copied or on a shared disk.
Result<Target> by_tracker(const std::string& text, const ProcReader& reader) {
  Target target;
  target.tracker_path = absolute_path(text, std::filesystem::current_path().string());
  target.name = target.tracker_path;  // as the next command must name it
  target.roots = holders_of(target.tracker_path, false, reader);
  return target;
}

/// A server: its processes too when it is this machine's and they may be looked into.
Result<Target> by_address(const std::string& text, const ProcReader& reader) {
  Target target;
  EAGLET_ASSIGN_OR_RETURN(target.server, http_address(text));
  target.name = text;
  if (!is_loopback(target.server.host)) return target;
  const auto sockets = listening_sockets(reader);
  for (const std::int64_t pid : reader.all_pids())
    for (const auto& file : reader.open_files(pid))
      if (const auto found = sockets.find(file.path);
          found != sockets.end() && found->second.port == target.server.port)
        add_unique(&target.roots, topmost(pid, reader));
  return target;
}

Result<Target> by_name(const std::string& text, const ProcReader& reader) {
  const auto own = own_line(reader);
  Pids by_id, by_word;
  for (const std::int64_t pid : reader.all_pids()) {
    if (own.count(pid) != 0) continue;
    const std::string command = reader.command(pid);
    if (command.empty()) continue;
    const auto environment = reader.environment(pid);
    const auto id = environment.find("EAGLET_RUN_ID");
    if (id != environment.end() && id->second == text) add_unique(&by_id, topmost(pid, reader));
    const bool tool = contains(command, "eaglet doctor") || contains(command, "eaglet watch") ||
                      contains(command, "eaglet wait");
    if (contains(command, text) && !tool) add_unique(&by_word, topmost(pid, reader));
  }
  Target target;
  target.name = text;
  target.roots = by_id.empty() ? by_word : by_id;
  if (target.roots.empty())
    return Status(
        StatusCode::kNotFound, "no process, directory or log is called '" + text + "'", {},
        "give a process id, a run directory or a log file; a run on another machine: --host USER@MACHINE");
  // Children of one of them belong to it.
  Pids tops;
  for (const std::int64_t pid : target.roots) {
    bool below = false;
    for (auto process = reader.basics(pid); process && process->parent > 1;
         process = reader.basics(process->parent))
      below =
          below || std::find(target.roots.begin(), target.roots.end(), process->parent) != target.roots.end();
    if (!below) tops.push_back(pid);
  }
  target.roots = tops;
  if (by_id.empty() && target.roots.size() > 1) {
    std::string list;
    for (const std::int64_t pid : target.roots)
      list += fmt::format("\n         {}  {:.80}", pid, reader.command(pid));
    return Status(StatusCode::kUsage, fmt::format("'{}' fits {} runs", text, target.roots.size()), {},
                  "give one process id:" + list);
  }
  return target;
}

}  // namespace

Result<Target> resolve_target(const std::string& text, const ProcReader& reader) {
  Result<Target> found = Status();
  std::error_code error;
  if (const auto pid = whole_number(text); pid && text.find_first_not_of("0123456789") == std::string::npos) {
    if (!reader.basics(*pid))
      return Status(StatusCode::kNotFound, "there is no process " + text, {},
                    "find it with: pgrep -af train; one on another machine: --host USER@MACHINE");
    Target target;
    target.name = text;
    target.roots = {topmost(*pid, reader)};
    found = target;
  } else if (starts_with(text, "http://") || starts_with(text, "https://")) {
    found = by_address(text, reader);
  } else if (is_directory(text)) {
    found = by_directory(text, reader);
  } else if (path_exists(text) && !std::filesystem::is_regular_file(text, error)) {
    return Status(StatusCode::kUsage, "it is neither a directory nor a file that keeps what is written", text,
                  "give a process id, a run directory or a log file");
  } else if (path_exists(text) && text.ends_with(".db")) {
    found = by_tracker(text, reader);
  } else if (path_exists(text)) {
    found = by_log(text, reader);
  } else {
    found = by_name(text, reader);
  }
  if (!found.ok()) return found;
  std::vector<ProcessOpen> tree;
  for (const std::int64_t pid : run_tree(found->roots, reader))
    tree.push_back({pid, reader.command(pid), reader.open_files(pid)});
  find_files(reader, tree, &*found);
  return found;
}

std::vector<std::int64_t> run_tree(const std::vector<std::int64_t>& roots, const ProcReader& reader) {
  std::map<std::int64_t, ProcessView> all;
  for (const std::int64_t pid : reader.all_pids())
    if (auto process = reader.basics(pid)) all.emplace(pid, std::move(*process));
  std::set<std::int64_t> tree, sessions;
  for (const std::int64_t root : roots) {
    if (all.count(root) == 0) continue;
    tree.insert(root);
    if (all[root].session == root) sessions.insert(root);  // its own session: what is in it belongs to it
  }
  const auto own = own_line(reader);
  for (bool grew = true; grew;) {
    grew = false;
    for (const auto& [pid, process] : all) {
      const bool member = tree.count(process.parent) != 0 || sessions.count(process.session) != 0;
      if (member && own.count(pid) == 0) grew = tree.insert(pid).second || grew;
    }
  }
  return {tree.begin(), tree.end()};
}

void find_files_in(const std::string& directory, Target* target) {
  for (const std::string& place : {directory + "/draft", directory}) {
    if (path_exists(place + "/status.json")) target->status_path = place + "/status.json";
    if (path_exists(place + "/train_config.json"))
      target->config_path = place + "/train_config.json";
    else if (path_exists(place + "/run.yaml") && target->config_path.empty())
      target->config_path = place + "/run.yaml";
    if (path_exists(place + "/log.jsonl")) target->log_path = place + "/log.jsonl";
    if (!target->status_path.empty() || !target->log_path.empty()) {
      target->output_dir = place;
      break;
    }
  }
  if (path_exists(directory + "/launch.json")) {
    target->launch_path = directory + "/launch.json";
    if (target->log_path.empty()) target->log_path = directory + "/log.txt";
  } else if (target->output_dir.empty()) {
    target->output_dir = directory;  // a launch directory is not where the run writes
  }
  if (!target->log_path.empty()) return;
  const auto names = list_directory(directory);
  if (!names.ok()) return;
  double newest = -1;
  for (const std::string& name : *names) {
    struct stat info = {};
    const std::string path = directory + "/" + name;
    if (!is_log_name(name) || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (name.size() > 5 && name.substr(name.size() - 5) == ".json") continue;
    if (static_cast<double>(info.st_mtime) <= newest) continue;
    newest = static_cast<double>(info.st_mtime);
    target->log_path = path;
  }
}

namespace {

/// "a | tee train.log", or the supervisor of `eaglet launch`: who else has the pipe, not as its own output,
/// and the file it writes.
std::string file_behind_pipe(const std::string& pipe, const ProcReader& reader) {
  for (const std::int64_t pid : reader.all_pids()) {
    const auto files = reader.open_files(pid, 16);
    bool reads = false, writes = false;
    for (const auto& file : files) {
      if (file.path != pipe) continue;
      (file.fd == 1 || file.fd == 2 ? writes : reads) = true;
    }
    if (!reads || writes) continue;
    for (const auto& file : files)
      if (file.fd > 2 && file.writable && !starts_with(file.path, "/dev/")) return file.path;
  }
  return {};
}

/// Following a pipe looks at all that run, and a hundred processes may share one: the one who reads it may
/// open its file a moment later, not more.
bool worth_following(const std::string& pipe, Target* target) {
  constexpr int kMostTimes = 3;
  return starts_with(pipe, "pipe:") && ++target->pipes[pipe] <= kMostTimes;
}

/// torchrun may give each rank files of its own, and the launcher's stays silent; logging may go to a
/// program's second output when its first stays empty.
bool is_better_log(const std::string& path, std::int64_t pid, bool launcher, const Target& target) {
  if (target.log_path.empty()) return true;
  if (target.log_from == Target::LogFrom::kNamed || path == target.log_path) return false;
  if (target.log_from == Target::LogFrom::kLauncher && !launcher) return true;
  if (pid != target.log_pid) return false;
  const auto now = file_bytes(target.log_path), other = file_bytes(path);
  return now.ok() && *now == 0 && other.ok() && *other > 0;
}

void take_log(const std::string& path, Target::LogFrom from, Target* target) {
  target->log_path = path;
  target->log_from = from;
  const std::string beside = std::filesystem::path(path).parent_path().string() + "/launch.json";
  if (target->launch_path.empty() && !path.empty() && path_exists(beside)) target->launch_path = beside;
}

void take_open_files(const ProcReader& reader, const ProcessOpen& process, std::set<std::string>* asked,
                     Target* target) {
  ProcessView view;
  view.command = process.command;
  const bool launcher = is_launcher(view);
  const auto from = launcher ? Target::LogFrom::kLauncher : Target::LogFrom::kRank;
  for (const auto& file : process.files) {
    std::string path = file.path;
    constexpr std::string_view kDeleted = " (deleted)";
    const bool deleted =
        path.size() > kDeleted.size() && path.substr(path.size() - kDeleted.size()) == kDeleted;
    const bool output = file.fd == 1 || file.fd == 2;
    if (output && target->log_path.empty() && asked->insert(path).second && worth_following(path, target))
      take_log(file_behind_pipe(path, reader), from, target);
    if (path.front() != '/' || !file.writable || starts_with(path, "/dev/")) continue;
    if (output && deleted) target->log_deleted = true;
    if (deleted) continue;
    const std::string folder = std::filesystem::path(path).parent_path().string();
    if (name_of(path) == "log.jsonl") {  // ours: better than what it prints
      take_log(path, Target::LogFrom::kNamed, target);
      target->output_dir = folder;
    } else if (output && is_better_log(path, process.pid, launcher, *target)) {
      take_log(path, from, target);
      target->log_pid = process.pid;
    } else if (contains(path, "events.out.tfevents.") && target->output_dir.empty()) {
      target->output_dir = folder;
    } else if (path.ends_with(".db") && std::find(target->databases.begin(), target->databases.end(), path) ==
                                            target->databases.end()) {
      target->databases.push_back(path);
    }
  }
}

void take_flags(const ProcReader& reader, const ProcessOpen& process, Target* target) {
  std::string base;  // asked for when it is needed
  const auto absolute = [&](const std::string& path) {
    if (base.empty()) base = reader.working_directory(process.pid);
    return absolute_path(path, base);
  };
  for (const auto& [key, value] : command_flags(process.command)) {
    const bool output = key == "output_dir" || key == "save_path" || key == "save_dir" ||
                        key == "checkpoint_dir" || key == "output" || key == "default_root_dir";
    if (output && target->output_dir.empty()) {
      const std::string path = absolute(value);
      if (is_directory(path)) target->output_dir = path;
    }
    if (key == "config" && target->config_path.empty() && value.size() > 5 &&
        value.substr(value.size() - 5) == ".json")
      target->config_path = absolute(value);
  }
}

}  // namespace

void find_files(const ProcReader& reader, const std::vector<ProcessOpen>& processes, Target* target) {
  std::set<std::string> asked;
  for (const ProcessOpen& process : processes) {
    take_open_files(reader, process, &asked, target);
    take_flags(reader, process, target);
  }
  const std::string beside = std::filesystem::path(target->log_path).parent_path().string() + "/launch.json";
  if (target->launch_path.empty() && !target->log_path.empty() && path_exists(beside))
    target->launch_path = beside;
  if (target->output_dir.empty()) return;
  Target there;
  find_files_in(target->output_dir, &there);
  if (target->launch_path.empty()) target->launch_path = there.launch_path;
  if (target->status_path.empty()) target->status_path = there.status_path;
  if (!there.config_path.empty()) target->config_path = there.config_path;
  if (target->log_path.empty()) target->log_path = there.log_path;
}

}  // namespace eaglet::monitor
