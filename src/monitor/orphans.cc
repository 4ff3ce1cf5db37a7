#include "monitor/orphans.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/wait_ready.h"
#include "monitor/listening.h"
#include "monitor/roles.h"
#include "monitor/shm_leftovers.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr double kMuchMemory = 100e6;
constexpr std::size_t kMostNamed = 8;

/// What init is called in a container, and who else adopts processes.
bool adopts(const ProcessView& parent) {
  for (const char* name :
       {"systemd", "init", "tini", "dumb-init", "docker-init", "containerd-shim", "eaglet"})
    if (starts_with(parent.name, name)) return true;
  return parent.pid == 1;
}

std::int64_t owner_of(const ProcReader& reader, std::int64_t pid) {
  struct stat info = {};
  return ::stat(fmt::format("{}/{}", reader.roots().proc, pid).c_str(), &info) == 0
             ? static_cast<std::int64_t>(info.st_uid)
             : -1;
}

class Search {
 public:
  Search(const ProcReader& reader, DeviceSource* devices, double least_age)
      : reader_(reader), least_age_(least_age) {
    if (devices != nullptr) devices->read(&view_);
    for (const std::int64_t pid : reader.all_pids())
      if (auto process = reader.basics(pid)) all_.emplace(pid, std::move(*process));
    ports_ = listening_sockets(reader);
  }

  std::vector<Orphan> find() {
    std::vector<Orphan> found;
    for (auto& [pid, process] : all_)
      if (auto orphan = judge(&process)) found.push_back(std::move(*orphan));
    return found;
  }

  std::vector<StaleMemory> stale(double least_bytes) const {
    std::vector<StaleMemory> found;
    if (!view_.devices) return found;
    for (const DeviceView& device : *view_.devices) {
      if (std::isnan(device.reserved_bytes) || std::isnan(device.used_bytes)) continue;
      double owned = 0;
      bool outside = false;
      for (const DeviceProcess& process : *view_.device_processes)
        if (process.device == device.index) {
          owned += process.bytes;
          outside = outside || all_.count(process.pid) == 0;
        }
      const double stale = device.used_bytes - device.reserved_bytes - owned;
      if (stale > least_bytes) {
        const std::string holders = holders_of(device.index);
        found.push_back(
            {device.index, stale,
             "no process that the driver lists owns it; " +
                 (holders.empty() ? "nobody here has it open: an MPS server, another container, or the "
                                    "driver itself (then an administrator must reset the board)"
                                  : "it is held open by " + holders)});
      }
      if (outside) found.push_back({device.index, owned, "owned by a process outside this container"});
    }
    return found;
  }

 private:
  /// Processes that have the device open and that the driver does not list: workers forked from a dead rank.
  std::string holders_of(std::int64_t device) const {
    std::string holders;
    const std::string path = fmt::format("/dev/nvidia{}", device);
    for (const auto& [pid, process] : all_) {
      const bool listed = std::any_of(view_.device_processes->begin(), view_.device_processes->end(),
                                      [pid = pid](const DeviceProcess& p) { return p.pid == pid; });
      if (listed) continue;
      for (const auto& file : reader_.open_files(pid))
        if (file.path == path) {
          holders += fmt::format("{}pid {} ({})", holders.empty() ? "" : ", ", pid, process.name);
          break;
        }
    }
    return holders;
  }

  std::optional<Orphan> judge(ProcessView* process) {
    if (process->pid == 1 || process->parent == 0 || process->parent == 2 || process->state == 'Z')
      return std::nullopt;
    const auto parent = all_.find(process->parent);
    const bool parent_gone = parent == all_.end() || adopts(parent->second);
    if (!parent_gone) return std::nullopt;
    process->command = reader_.command(process->pid);
    if (process->command.empty()) return std::nullopt;
    const auto environment = reader_.environment(process->pid);
    const auto id = environment.find("EAGLET_RUN_ID");
    const bool leads = process->session == process->pid;
    const bool leader_alive = all_.count(process->session) != 0 && all_.at(process->session).state != 'Z';
    const bool of_run = id != environment.end() && !leads && !leader_alive;
    if (!of_run && !(is_worker(*process) && !leads)) return std::nullopt;
    Orphan orphan;
    orphan.age_seconds =
        reader_.uptime_seconds() - process->start_time / static_cast<double>(::sysconf(_SC_CLK_TCK));
    if (orphan.age_seconds < least_age_) return std::nullopt;
    orphan.pid = process->pid;
    orphan.start_time = process->start_time;
    orphan.command = process->command;
    orphan.rss_bytes = std::isnan(process->rss_bytes) ? 0 : process->rss_bytes;
    orphan.run_id = id == environment.end() ? "" : id->second;
    orphan.user = owner_of(reader_, process->pid);
    orphan.ours = orphan.user == static_cast<std::int64_t>(::getuid());
    orphan.proof =
        fmt::format("its parent is gone (now {}{})", process->parent,
                    leader_alive ? "" : fmt::format(", session leader {} is dead", process->session));
    orphan.proof +=
        orphan.run_id.empty() ? ", it is a loader's worker by name" : ", it carries run id " + orphan.run_id;
    if (!note_holdings(&orphan)) return std::nullopt;
    return orphan;
  }

  /// Something that is worth ending it for. A process of a run id counts whatever it holds.
  bool note_holdings(Orphan* orphan) const {
    std::set<std::string> held;
    for (const auto& file : reader_.open_files(orphan->pid)) {
      if (starts_with(file.path, "/dev/nvidia")) held.insert(file.path);
      if (const auto port = ports_.find(file.path); port != ports_.end())
        held.insert(fmt::format("port {}", port->second.port));
      if (starts_with(file.path, "/dev/shm/")) held.insert(file.path);
    }
    if (view_.device_processes)
      for (const DeviceProcess& process : *view_.device_processes)
        if (process.pid == orphan->pid && !std::isnan(process.bytes)) orphan->device_bytes += process.bytes;
    if (orphan->device_bytes > 0) held.insert(human_bytes(orphan->device_bytes) + " of GPU memory");
    if (orphan->rss_bytes > kMuchMemory) held.insert(human_bytes(orphan->rss_bytes) + " of memory");
    for (const std::string& one : held) orphan->holds += (orphan->holds.empty() ? "" : ", ") + one;
    return !held.empty() || !orphan->run_id.empty();
  }

  const ProcReader& reader_;
  double least_age_;
  RunView view_;
  std::map<std::int64_t, ProcessView> all_;
  std::map<std::string, Listener> ports_;
};

bool same_start(const ProcReader& reader, const Orphan& orphan) {
  const auto process = reader.basics(orphan.pid);
  return process && process->start_time == orphan.start_time && process->state != 'Z';
}

int pidfd_of(std::int64_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
}

/// True when the process is gone. The pidfd pins who is meant, so a reused number cannot be hit.
bool end_one(const ProcReader& reader, const Orphan& orphan, double patience) {
  const int fd = pidfd_of(orphan.pid);
  if (fd < 0) return !same_start(reader, orphan);
  bool gone = !same_start(reader, orphan);
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (gone) break;
    ::syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0);
    gone = wait_ready(fd, POLLIN, monotonic_seconds() + (signal == SIGTERM ? patience : 2));
    if (interrupted()) break;  // who stops us does not ask for KILL
  }
  ::close(fd);
  return gone;
}

}  // namespace

OrphanReport find_orphans(const ProcReader& reader, DeviceSource* devices, double least_age_seconds) {
  OrphanReport report;
  Search search(reader, devices, least_age_seconds);
  report.orphans = search.find();
  report.stale = search.stale(1e9);
  if (devices == nullptr) report.notes.emplace_back("no GPU here: only processes were looked at");
  const auto left = shm_leftovers(reader);
  double bytes = 0;
  std::string paths;
  for (std::size_t i = 0; i < left.size(); ++i) {
    bytes += left[i].bytes;
    if (i < kMostNamed) paths += " " + left[i].path;
  }
  if (!left.empty())
    report.notes.push_back(fmt::format("{} segment{} of dead trainers, {}, that nobody maps: rm{}{}",
                                       left.size(), left.size() == 1 ? "" : "s", human_bytes(bytes), paths,
                                       left.size() > kMostNamed ? " ..." : ""));
  return report;
}

std::vector<Orphan> end_orphans(const std::vector<Orphan>& orphans, const std::string& run_id,
                                double patience_seconds, const ProcReader& reader) {
  std::vector<Orphan> remain;
  for (const Orphan& orphan : orphans)
    if (orphan.ours && !run_id.empty() && orphan.run_id == run_id &&
        (interrupted() || !end_one(reader, orphan, patience_seconds)))
      remain.push_back(orphan);
  return remain;
}

}  // namespace eaglet::monitor
