#include "monitor/proc_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "monitor/saved_tables.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostMapsBytes = std::size_t{64} << 20;

double ticks_per_second() {
  static const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return ticks > 0 ? ticks : 100;
}

/// "name: 123 kB" or "name 123": the number in a kernel table of lines.
double table_number(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    const std::string_view line = text.substr(at + name.size(), text.find('\n', at) - at - name.size());
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;
    const std::string_view value = line.substr(begin, line.find_first_of(" \t", begin) - begin);
    return number(value).value_or(kNotKnown);
  }
  return kNotKnown;
}

/// "some avg10=0.00 avg60=0.00 avg300=0.00 total=123" (microseconds) of a pressure file: seconds.
double pressure_seconds(const std::string& text, std::string_view kind) {
  for (const std::string_view line : split(text, '\n')) {
    if (!starts_with(line, kind)) continue;
    const std::size_t at = line.find("total=");
    if (at != std::string_view::npos) return number(trim(line.substr(at + 6))).value_or(kNotKnown) / 1e6;
  }
  return kNotKnown;
}

void read_pressure(const std::string& cpu, const std::string& memory, HostView* host) {
  host->cpu_some_seconds = pressure_seconds(cpu, "some ");
  host->cpu_full_seconds = pressure_seconds(cpu, "full ");
  host->memory_some_seconds = pressure_seconds(memory, "some ");
  host->memory_full_seconds = pressure_seconds(memory, "full ");
}

/// What processes use, without the pages of files: those are given back before anything is killed.
double without_file_pages(double bytes, const std::string& stat, const char* inactive, const char* active) {
  const double files = table_number(stat, inactive) + table_number(stat, active);
  return files >= 0 && files <= bytes ? bytes - files : bytes;
}

double file_number(const std::string& path) {
  return number(trim(read_small(path))).value_or(kNotKnown);
}

/// Bytes in and out of all interfaces but the loopback, from /proc/PID/net/dev.
double network_bytes(const std::string& table) {
  double bytes = kNotKnown;
  for (const std::string_view line : split(table, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || trim(line.substr(0, colon)) == "lo") continue;
    const auto fields = words(line.substr(colon + 1));
    if (fields.size() < 9) continue;
    const double both = number(fields[0]).value_or(0) + number(fields[8]).value_or(0);
    bytes = std::isnan(bytes) ? both : bytes + both;
  }
  return bytes;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) names.emplace_back(entry->d_name);
  ::closedir(dir);
  return names;
}

}  // namespace

std::string read_small(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return text;
  char block[8192];
  ssize_t got = 0;
  while (text.size() < (1u << 20) && (got = ::read(fd, block, sizeof block)) > 0)
    text.append(block, static_cast<std::size_t>(got));
  ::close(fd);
  return text;
}

std::string read_link(const std::string& path) {
  char target[4096];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : std::string();
}

std::vector<std::int64_t> ProcReader::all_pids() const {
  std::vector<std::int64_t> pids;
  for (const std::string& name : names_in(roots_.proc))
    if (const auto pid = whole_number(name)) pids.push_back(*pid);
  std::sort(pids.begin(), pids.end());
  return pids;
}

std::string_view ProcReader::table(std::int64_t pid, KeptTables::Table which, KeptTables* kept,
                                   std::string* scratch) const {
  if (kept != nullptr) return kept->read(roots_.proc, pid, which);
  *scratch = read_small(fmt::format("{}/{}/{}", roots_.proc, pid, KeptTables::name(which)));
  return *scratch;
}

std::optional<ProcessView> ProcReader::basics(std::int64_t pid, KeptTables* kept) const {
  std::string scratch;
  const std::string_view text = table(pid, KeptTables::Table::kStat, kept, &scratch);
  // The name may hold blanks and brackets: the fields begin after the last one.
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  const auto fields = words(text.substr(close + 1));
  if (fields.size() < 22) return std::nullopt;
  const auto field = [&](std::size_t n) {
    return number(fields[n - 3]).value_or(kNotKnown);
  };  // proc(5) counts from 1
  ProcessView process;
  process.pid = pid;
  process.name = text.substr(open + 1, close - open - 1);
  process.state = fields[0].front();
  process.parent = static_cast<std::int64_t>(field(4));
  process.group = static_cast<std::int64_t>(field(5));
  process.session = static_cast<std::int64_t>(field(6));
  process.major_faults = field(12);
  if (fields.size() >= 40) process.disk_wait_seconds = field(42) / ticks_per_second();
  process.cpu_seconds = (field(14) + field(15)) / ticks_per_second();
  process.start_time = field(22);
  process.rss_bytes = field(24) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return process;
}

std::string ProcReader::command(std::int64_t pid) const {
  std::string text = read_small(fmt::format("{}/{}/cmdline", roots_.proc, pid));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

void ProcReader::details(ProcessView* process, KeptTables* kept) const {
  using Table = KeptTables::Table;
  const std::int64_t pid = process->pid;
  if (process->command.empty()) process->command = command(pid);
  if (process->command.empty()) process->command = "[" + process->name + "]";
  if (process->rank < 0) process->rank = rank_of_command(process->command);
  std::string scratch;
  if (const std::string_view io = table(pid, Table::kIo, kept, &scratch); !io.empty()) {
    process->read_chars = table_number(io, "rchar:");
    process->write_chars = table_number(io, "wchar:");
    process->read_bytes = table_number(io, "read_bytes:");
    process->write_bytes = table_number(io, "write_bytes:");
  }
  if (const auto parts = words(table(pid, Table::kSchedule, kept, &scratch)); parts.size() >= 2)
    process->run_wait_seconds = number(parts[1]).value_or(kNotKnown) / 1e9;
  process->wait_place = std::string(trim(table(pid, Table::kWaitPlace, kept, &scratch)));
  if (process->wait_place == "0") process->wait_place.clear();
}

double ProcReader::swapped_bytes(std::int64_t pid) const {
  return table_number(read_small(fmt::format("{}/{}/status", roots_.proc, pid)), "VmSwap:") * 1024;
}

std::map<std::string, std::string> ProcReader::environment(std::int64_t pid) const {
  std::map<std::string, std::string> found;
  const std::string text = read_small(fmt::format("{}/{}/environ", roots_.proc, pid));
  for (const std::string_view entry : split(text, '\0')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string name(entry.substr(0, equals));
    found[name] = looks_secret(name) ? "(hidden)" : std::string(entry.substr(equals + 1));
  }
  return found;
}

std::string ProcReader::working_directory(std::int64_t pid) const {
  return read_link(fmt::format("{}/{}/cwd", roots_.proc, pid));
}

std::vector<ProcReader::OpenFile> ProcReader::open_files(std::int64_t pid, std::size_t most) const {
  const std::string base = fmt::format("{}/{}/", roots_.proc, pid);
  std::vector<int> fds;
  for (const std::string& name : names_in(base + "fd"))
    if (const auto fd = whole_number(name); fd && *fd < 1000000) fds.push_back(static_cast<int>(*fd));
  std::sort(fds.begin(), fds.end());
  if (fds.size() > most) fds.resize(most);
  std::vector<OpenFile> files;
  for (const int fd : fds) {
    OpenFile file;
    file.fd = fd;
    file.path = read_link(fmt::format("{}fd/{}", base, fd));
    if (file.path.empty()) continue;
    if (file.path.front() == '/' && !starts_with(file.path, "/dev/")) {
      const std::string info = read_small(fmt::format("{}fdinfo/{}", base, fd));
      file.position = table_number(info, "pos:");
      const std::size_t at = info.find("flags:");
      if (at != std::string::npos)
        file.writable = (std::strtol(info.c_str() + at + 6, nullptr, 8) & O_ACCMODE) != O_RDONLY;
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::string ProcReader::map_table(std::int64_t pid) const {
  std::string text;
  const int fd = ::open(fmt::format("{}/{}/maps", roots_.proc, pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  std::string block(1 << 16, '\0');
  for (ssize_t got = 0; (got = ::read(fd, block.data(), block.size())) > 0 && text.size() <= kMostMapsBytes;)
    text.append(block, 0, static_cast<std::size_t>(got));
  ::close(fd);
  return text.size() <= kMostMapsBytes ? text : std::string();
}

double ProcReader::uptime_seconds() const {
  const std::string text = read_small(roots_.proc + "/uptime");
  const auto parts = words(text);
  return parts.empty() ? kNotKnown : number(parts.front()).value_or(kNotKnown);
}

void ProcReader::read_cgroup(std::int64_t pid, HostView* host) const {
  const std::string text = read_small(fmt::format("{}/{}/cgroup", roots_.proc, pid));
  for (const std::string_view line : split(text, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const std::string path(parts[2] == "/" ? std::string_view() : parts[2]);
    if (parts[1].empty()) {  // version 2
      const std::string base = roots_.cgroup + path;
      const std::string max = read_small(base + "/cpu.max");
      const auto limits = words(max);
      if (limits.size() == 2 && number(limits[0]))
        host->quota_cores = *number(limits[0]) / number(limits[1]).value_or(100000);
      host->throttled_seconds = table_number(read_small(base + "/cpu.stat"), "throttled_usec") / 1e6;
      host->cgroup_bytes =
          without_file_pages(file_number(base + "/memory.current"), read_small(base + "/memory.stat"),
                             "inactive_file ", "active_file ");
      host->cgroup_limit = file_number(base + "/memory.max");
      host->oom_kills = table_number(read_small(base + "/memory.events"), "oom_kill ");
      if (path.empty()) continue;  // the root group is the machine
      const std::string pressure = read_small(base + "/cpu.pressure");
      if (pressure.empty()) continue;
      read_pressure(pressure, read_small(base + "/memory.pressure"), host);
      host->pressure_of_container = true;
    } else if (contains(parts[1], "cpu") && !contains(parts[1], "cpuset")) {  // version 1
      const std::string base = roots_.cgroup + "/cpu" + path;
      const double quota = file_number(base + "/cpu.cfs_quota_us"),
                   period = file_number(base + "/cpu.cfs_period_us");
      if (quota > 0 && period > 0) host->quota_cores = quota / period;
      host->throttled_seconds = table_number(read_small(base + "/cpu.stat"), "throttled_time") / 1e9;
    } else if (parts[1] == "memory") {
      const std::string base = roots_.cgroup + "/memory" + path;
      host->cgroup_bytes =
          without_file_pages(file_number(base + "/memory.usage_in_bytes"), read_small(base + "/memory.stat"),
                             "total_inactive_file ", "total_active_file ");
      const double limit = file_number(base + "/memory.limit_in_bytes");
      if (limit < 1e15) host->cgroup_limit = limit;
      host->oom_kills = table_number(read_small(base + "/memory.oom_control"), "oom_kill ");
    }
  }
}

HostView ProcReader::host(std::int64_t pid) const {
  HostView host;
  const std::string memory = read_small(roots_.proc + "/meminfo");
  host.memory_total = table_number(memory, "MemTotal:") * 1024;
  host.memory_available = table_number(memory, "MemAvailable:") * 1024;
  static const double cores = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  host.cores = cores;
  read_pressure(read_small(roots_.proc + "/pressure/cpu"), read_small(roots_.proc + "/pressure/memory"),
                &host);
  read_cgroup(pid, &host);
  host.network_bytes = network_bytes(read_small(fmt::format("{}/{}/net/dev", roots_.proc, pid)));
  struct statvfs shm = {};
  if (::statvfs(roots_.shm.c_str(), &shm) == 0 && shm.f_blocks > 0) {
    host.shm_total = static_cast<double>(shm.f_blocks) * static_cast<double>(shm.f_frsize);
    host.shm_bytes = host.shm_total - static_cast<double>(shm.f_bavail) * static_cast<double>(shm.f_frsize);
  }
  return host;
}

}  // namespace eaglet::monitor
