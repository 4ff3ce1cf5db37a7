#include "monitor/trackio_machine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "formats/json.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr double kBytesPerGiB = 1024.0 * 1024 * 1024, kBytesPerMiB = 1024.0 * 1024;
constexpr double kOneMomentSeconds = 5, kKeptSeconds = 900;
constexpr std::size_t kMostMoments = 1000;

/// Whose device a name is of: "rank3/gpu/0/power" -> rank 3, device 0, "power".
struct Name {
  std::int64_t rank = -1, device = -1;
  std::string_view what;
};

bool take_number(std::string_view* text, std::int64_t* number) {
  const std::string_view digits = text->substr(0, text->find('/'));
  const auto value = whole_number(digits);
  if (!value || *value < 0 || *value > 4096 || digits.size() == text->size()) return false;
  *number = *value;
  text->remove_prefix(digits.size() + 1);
  return true;
}

Name name_of(std::string_view text) {
  Name name;
  if (starts_with(text, "rank")) {
    text.remove_prefix(4);
    if (!take_number(&text, &name.rank)) return name;
  }
  name.what = text;
  if (!starts_with(text, "gpu/")) return name;
  text.remove_prefix(4);
  if (take_number(&text, &name.device)) name.what = text;
  return name;
}

void set_reason(std::uint64_t bit, double value, DeviceView* device) {
  device->slow_reasons = device->slow_reasons.value_or(0) | (value > 0 ? bit : 0);
}

void take(std::string_view what, double value, DeviceView* device) {
  const std::pair<const char*, std::pair<double DeviceView::*, double>> kFields[] = {
      {"utilization", {&DeviceView::busy_pct, 1}},
      {"power", {&DeviceView::power_w, 1}},
      {"power_limit", {&DeviceView::limit_w, 1}},
      {"allocated_memory", {&DeviceView::used_bytes, kBytesPerGiB}},
      {"total_memory", {&DeviceView::total_bytes, kBytesPerGiB}},
      {"temp", {&DeviceView::celsius, 1}},
      {"sm_clock", {&DeviceView::clock_mhz, 1}},
      {"energy_consumed", {&DeviceView::energy_j, 1}},
      {"pcie_rx", {&DeviceView::pcie_in, kBytesPerMiB}},
      {"pcie_tx", {&DeviceView::pcie_out, kBytesPerMiB}},
      {"uncorrected_memory_errors", {&DeviceView::ecc_uncorrected, 1}}};
  for (const auto& [name, field] : kFields)
    if (what == name) device->*field.first = value * field.second;
  // The bits that NVML has for the same.
  if (what == "throttle_power") set_reason(0x4, value, device);
  if (what == "throttle_hw_slowdown") set_reason(0x8, value, device);
  if (what == "throttle_thermal") set_reason(0x20, value, device);
}

}  // namespace

TrackedMoment tracked_moment(std::string_view record, double time) {
  TrackedMoment moment;
  moment.time = time;
  const auto json = parse_json(std::string(record));
  if (!json.ok() || !json->is_object()) return moment;
  std::map<std::pair<std::int64_t, std::int64_t>, DeviceView> devices;
  std::set<std::int64_t> seen;
  for (const auto& [key, value] : json->items()) {
    if (!value.is_number()) continue;
    const Name name = name_of(key);
    if (name.device >= 0) {
      take(name.what, value.get<double>(), &devices[{name.rank, name.device}]);
      seen.insert(name.device);
    }
    if (name.what == "memory/percent") moment.memory_share = value.get<double>() / 100;
    if (name.what == "memory/total") moment.memory_total = value.get<double>() * kBytesPerGiB;
    if (name.what == "cpu/utilization") moment.cpu_share = value.get<double>() / 100;
  }
  // A rank that sees one device only calls it 0; ranks that see all of them call them alike.
  for (auto& [whose, device] : devices) {
    device.index = seen.size() == 1 && whose.first >= 0 ? whose.first : whose.second;
    moment.devices.push_back(device);
  }
  return moment;
}

void add_tracked(TrackedMoment moment, std::vector<TrackedMoment>* moments) {
  if (std::isnan(moment.time)) return;
  if (!moments->empty() && std::abs(moment.time - moments->back().time) < kOneMomentSeconds) {
    TrackedMoment& last = moments->back();
    for (const DeviceView& device : moment.devices)
      if (std::none_of(last.devices.begin(), last.devices.end(),
                       [&](const DeviceView& other) { return other.index == device.index; }))
        last.devices.push_back(device);
    if (std::isnan(last.memory_share)) last.memory_share = moment.memory_share;
    if (std::isnan(last.memory_total)) last.memory_total = moment.memory_total;
    if (std::isnan(last.cpu_share)) last.cpu_share = moment.cpu_share;
    return;
  }
  moments->push_back(std::move(moment));
  const double newest = moments->back().time;
  std::erase_if(*moments, [&](const TrackedMoment& one) { return newest - one.time > kKeptSeconds; });
  if (moments->size() > kMostMoments) moments->erase(moments->begin());
}

}  // namespace eaglet::monitor
