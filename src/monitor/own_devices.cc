#include "monitor/own_devices.h"

#include <algorithm>

#include "monitor/roles.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

using Devices = std::set<std::int64_t>;

void keep(const Devices& own, RunView* view) {
  if (view->devices)
    std::erase_if(*view->devices, [&](const DeviceView& device) { return own.count(device.index) == 0; });
  if (view->device_processes)
    std::erase_if(*view->device_processes,
                  [&](const DeviceProcess& process) { return own.count(process.device) == 0; });
}

bool is_ours(const RunView& view, std::int64_t pid) {
  return std::any_of(view.processes->begin(), view.processes->end(),
                     [&](const ProcessView& process) { return process.pid == pid; });
}

/// Indices, UUIDs ("GPU-8f2a..."), or the first letters of one; what follows an entry that is none counts no
/// more, as CUDA reads it. MIG instances name no whole device.
Devices named_by(const std::string& visible, const std::vector<DeviceView>& devices, bool numbers) {
  Devices named;
  for (const std::string_view entry : split(visible, ',')) {
    const std::string_view name = trim(entry);
    const auto index = whole_number(name);
    const std::size_t before = named.size();
    for (const DeviceView& device : devices)
      if (index ? numbers && device.index == *index
                : starts_with(name, "GPU-") && starts_with(device.id, name))
        named.insert(device.index);
    if (named.size() == before) break;
  }
  return named;
}

/// Whether the descriptors of some process could be read, and none of those holds a device.
bool holds_none(const std::vector<ProcessView>& processes) {
  bool any = false;
  for (const ProcessView& process : processes) {
    if (process.holds_device) return false;
    any = any || process.files_known;
  }
  return any;
}

}  // namespace

void OwnDevices::restrict(const std::set<std::string>& visible, bool in_container, RunView* view) {
  if (!view->devices || view->devices->empty() || !view->processes || view->processes->empty()) return;
  if (view->device_processes && !in_container)
    for (const DeviceProcess& process : *view->device_processes)
      if (is_ours(*view, process.pid)) seen_.insert(process.device);
  if (!seen_.empty()) return keep(seen_, view);
  if (holds_none(*view->processes)) return keep({}, view);
  Devices own;
  const bool alike = std::all_of(view->devices->begin(), view->devices->end(), [&](const DeviceView& device) {
    return device.name == view->devices->front().name;
  });
  for (const std::string& list : visible) own.merge(named_by(list, *view->devices, by_bus_ || alike));
  if (own.empty()) {
    for (const DeviceView& device : *view->devices) own.insert(device.index);
    if (view->device_processes && !in_container)
      for (const DeviceProcess& process : *view->device_processes) own.erase(process.device);
  }
  keep(own, view);
}

void keep_own_devices(RunSeries* series) {
  Devices own;
  for (const RunView& view : series->views) {
    if (!view.processes || !view.device_processes) continue;
    const Roles roles = roles_of(view);
    std::set<std::int64_t> pids;
    for (const auto* list : {&roles.ranks, &roles.workers, &roles.zombie_ranks, &roles.launchers})
      for (const std::size_t i : *list) pids.insert((*view.processes)[i].pid);
    for (const DeviceProcess& process : *view.device_processes)
      if (pids.count(process.pid) != 0) own.insert(process.device);
  }
  if (own.empty()) return;
  for (RunView& view : series->views) keep(own, &view);
}

}  // namespace eaglet::monitor
