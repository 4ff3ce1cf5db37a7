#include "monitor/saved_tables.h"

#include <algorithm>
#include <cmath>

#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

using Cells = std::vector<std::string_view>;

/// `count` words, and what remains of the line as the last cell.
Cells cells_of(std::string_view line, std::size_t count) {
  Cells cells;
  while (cells.size() + 1 < count) {
    line = trim(line);
    const std::size_t end = line.find_first_of(" \t");
    if (line.empty() || end == std::string_view::npos) break;
    cells.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  cells.push_back(trim(line));
  return cells;
}

void set_ps_cell(std::string_view column, std::string_view cell, ProcessView* process) {
  if (column == "PID")
    process->pid = whole_number(cell).value_or(-1);
  else if (column == "PPID")
    process->parent = whole_number(cell).value_or(-1);
  else if (column == "SID" || column == "SESS")
    process->session = whole_number(cell).value_or(-1);
  else if (column == "PGID" || column == "PGRP")
    process->group = whole_number(cell).value_or(-1);
  else if (column == "STAT" || column == "S")
    process->state = cell.empty() ? '?' : cell.front();
  else if (column == "TIME" || column == "CPUTIME")
    process->cpu_seconds = clock_duration(cell).value_or(kNotKnown);
  else if (column == "ELAPSED" || column == "ETIME")
    process->elapsed_seconds = clock_duration(cell).value_or(kNotKnown);
  else if (column == "ETIMES" || column == "TIMES") {
    (column == "TIMES" ? process->cpu_seconds : process->elapsed_seconds) = number(cell).value_or(kNotKnown);
  } else if (column == "RSS") {
    process->rss_bytes = number(cell).value_or(kNotKnown) * 1024;
  } else if (column == "WCHAN") {
    if (cell != "-") process->wait_place = cell;
  } else if (column == "CMD" || column == "COMMAND" || column == "ARGS") {
    process->command = cell;
  }
}

std::vector<std::string> csv_header(std::string_view line) {
  std::vector<std::string> names;
  for (std::string_view cell : split(line, ',')) {
    cell = trim(cell);
    names.push_back(lower(trim(cell.substr(0, cell.find('[')))));
  }
  return names;
}

/// "91 %", "612.40 W", "1980 MHz": the number in front of its unit.
double with_unit(std::string_view cell) {
  std::string_view rest;
  const auto value = leading_number(trim(cell), &rest);
  return value && std::isfinite(*value) ? *value : kNotKnown;
}

bool says_lost(std::string_view cell) {
  const std::string text = lower(cell);
  return contains(text, "lost") || contains(text, "requires reset") || contains(text, "err!") ||
         contains(text, "unknown error");
}

void set_gpu_cell(const std::string& column, std::string_view cell, DeviceView* device) {
  if (says_lost(cell)) device->lost = true;
  if (column == "index")
    device->index = whole_number(cell).value_or(device->index);
  else if (column == "uuid" || column == "gpu_uuid")
    device->id = cell;
  else if (column == "name" || column == "gpu_name")
    device->name = cell;
  else if (column == "utilization.gpu")
    device->busy_pct = with_unit(cell);
  else if (column == "power.draw" || column == "power.draw.average")
    device->power_w = with_unit(cell);
  else if (column == "power.limit" || column == "enforced.power.limit")
    device->limit_w = with_unit(cell);
  else if (column == "memory.used")
    device->used_bytes = mebibytes_text(cell).value_or(kNotKnown);
  else if (column == "memory.total")
    device->total_bytes = mebibytes_text(cell).value_or(kNotKnown);
  else if (column == "memory.reserved")
    device->reserved_bytes = mebibytes_text(cell).value_or(kNotKnown);
  else if (column == "temperature.gpu")
    device->celsius = with_unit(cell);
  else if (column == "clocks.sm" || column == "clocks.current.sm")
    device->clock_mhz = with_unit(cell);
  else if (column == "clocks.max.sm")
    device->max_clock_mhz = with_unit(cell);
  else if (column == "pcie.link.width.current")
    device->link_width = with_unit(cell);
  else if (column == "pcie.link.width.max")
    device->max_link_width = with_unit(cell);
  else if (column == "pcie.link.gen.current" || column == "pcie.link.gen.gpucurrent")
    device->link_generation = with_unit(cell);
  else if (column == "pcie.link.gen.max")
    device->max_link_generation = with_unit(cell);
  else if (column == "ecc.errors.uncorrected.volatile.total")
    device->ecc_uncorrected = with_unit(cell);
  else if (column == "mig.mode.current")
    device->mig = lower(cell) == "enabled";
  else if (column == "clocks_throttle_reasons.active" || column == "clocks_event_reasons.active") {
    if (starts_with(cell, "0x")) device->slow_reasons = std::strtoull(std::string(cell).c_str(), nullptr, 16);
  }
}

}  // namespace

std::vector<ProcessView> read_ps(std::string_view text) {
  std::vector<ProcessView> processes;
  std::vector<std::string> columns = {"PID", "PPID", "STAT", "%CPU", "TIME", "ELAPSED", "CMD"};
  for (const std::string_view line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    const auto parts = words(line);
    bool header = false;
    for (const std::string_view part : parts) header = header || part == "PID";
    if (header) {
      columns.assign(parts.begin(), parts.end());
      continue;
    }
    const Cells cells = cells_of(line, columns.size());
    ProcessView process;
    for (std::size_t i = 0; i < cells.size() && i < columns.size(); ++i)
      set_ps_cell(columns[i], cells[i], &process);
    if (process.pid < 0) continue;
    process.rank = rank_of_command(process.command);
    processes.push_back(std::move(process));
  }
  return processes;
}

std::vector<DeviceView> read_gpu_csv(std::string_view text) {
  std::vector<DeviceView> devices;
  std::vector<std::string> columns = {"index",       "name",        "utilization.gpu", "power.draw",
                                      "power.limit", "memory.used", "memory.total"};
  for (const std::string_view line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    const auto cells = split(line, ',');
    if (contains(lower(line), "utilization.gpu") || contains(lower(line), "memory.")) {
      columns = csv_header(line);
      continue;
    }
    DeviceView device;
    for (std::size_t i = 0; i < cells.size() && i < columns.size(); ++i)
      set_gpu_cell(columns[i], trim(cells[i]), &device);
    if (device.index < 0) device.index = static_cast<std::int64_t>(devices.size());
    if (cells.size() < 2) continue;  // "No devices were found" and other talk
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<DeviceProcess> read_compute_apps(std::string_view text, const std::vector<DeviceView>& devices) {
  std::vector<DeviceProcess> found;
  std::vector<std::string> columns = {"pid", "used_gpu_memory", "gpu_index"};
  for (const std::string_view line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    if (contains(line, "pid")) {
      columns = csv_header(line);
      continue;
    }
    const auto cells = split(line, ',');
    DeviceProcess process;
    for (std::size_t i = 0; i < cells.size() && i < columns.size(); ++i) {
      const std::string_view cell = trim(cells[i]);
      if (columns[i] == "pid") process.pid = whole_number(cell).value_or(-1);
      if (columns[i] == "used_gpu_memory" || columns[i] == "used_memory")
        process.bytes = mebibytes_text(cell).value_or(kNotKnown);
      if (columns[i] == "gpu_index" || columns[i] == "index")
        process.device = whole_number(cell).value_or(-1);
      if (columns[i] == "gpu_uuid")
        for (const DeviceView& device : devices)
          if (device.id == cell) process.device = device.index;
    }
    if (process.pid >= 0) found.push_back(process);
  }
  return found;
}

namespace {

/// Lines of `nvidia-smi pmon` and `dmon`: names in a line that begins with "# gpu", units in the one below
/// it.
template <class OnRow>
void read_mon_table(std::string_view text, OnRow on_row) {
  std::vector<std::string_view> columns;
  for (std::string_view line : split(text, '\n')) {
    line = trim(line);
    if (starts_with(line, "#")) {
      const auto names = words(line.substr(1));
      if (!names.empty() && names.front() == "gpu") columns = names;
      continue;
    }
    const auto cells = words(line);
    if (cells.size() < 2 || columns.empty()) continue;
    const auto cell = [&](std::string_view name) {
      for (std::size_t i = 0; i < columns.size() && i < cells.size(); ++i)
        if (columns[i] == name) return cells[i];
      return std::string_view();
    };
    on_row(whole_number(cells[0]).value_or(-1), cell);
  }
}

}  // namespace

void read_pmon(std::string_view text, std::vector<DeviceProcess>* processes) {
  std::vector<std::int64_t> told;  // devices of which some process has a figure: the others did not run
  read_mon_table(text, [&](std::int64_t device, const auto& cell) {
    const auto pid = whole_number(cell("pid"));
    const auto share = number(cell("sm"));
    if (!pid || !share || !(*share >= 0 && *share <= 100)) return;
    told.push_back(device);
    for (DeviceProcess& process : *processes)
      if (process.pid == *pid && process.device == device) process.busy_pct = *share;
  });
  for (DeviceProcess& process : *processes)
    if (std::isnan(process.busy_pct) && std::find(told.begin(), told.end(), process.device) != told.end())
      process.busy_pct = 0;
}

void read_dmon_link(std::string_view text, std::vector<DeviceView>* devices) {
  constexpr double kMB = 1e6;
  read_mon_table(text, [&](std::int64_t index, const auto& cell) {
    for (DeviceView& device : *devices) {
      if (device.index != index) continue;
      device.pcie_in = number(cell("rxpci")).value_or(kNotKnown) * kMB;
      device.pcie_out = number(cell("txpci")).value_or(kNotKnown) * kMB;
    }
  });
}

std::vector<FileView> read_file_list(std::string_view text) {
  std::vector<FileView> files;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t first = line.find(','), second = line.find(',', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    FileView file;
    const std::string_view time = trim(line.substr(0, first));
    const auto iso = iso_time(time);
    file.mtime = iso ? *iso : number(time).value_or(kNotKnown);
    file.bytes = number(line.substr(first + 1, second - first - 1)).value_or(kNotKnown);
    file.path = trim(line.substr(second + 1));
    if (!std::isnan(file.mtime)) files.push_back(std::move(file));
  }
  return files;
}

std::int64_t rank_of_command(std::string_view command) {
  for (const char* flag : {"--rank", "--local_rank", "--local-rank", "rank:"}) {
    const std::size_t at = command.find(flag);
    if (at == std::string_view::npos) continue;
    std::string_view rest = command.substr(at + std::string_view(flag).size());
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '=')) rest.remove_prefix(1);
    if (const auto rank = whole_number(rest.substr(0, rest.find_first_of(" ,]")))) return *rank;
  }
  return -1;
}

}  // namespace eaglet::monitor
