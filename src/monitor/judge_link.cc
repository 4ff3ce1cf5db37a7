// The way between the machine and its GPUs: lanes, generation, and how much crosses it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/judges.h"

namespace eaglet::monitor {
namespace {

constexpr int kLeastViews = 3;   // one burst is no traffic
constexpr double kBusyPct = 50;  // idle boards drop lanes and generation to save power

/// What a lane carries one way, by generation, as the PCI Express specifications have it; 0: not known.
double lane_bytes_per_second(double generation) {
  constexpr double kRates[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  const auto at = static_cast<std::size_t>(std::isnan(generation) ? 0 : std::max(0.0, generation));
  return at < std::size(kRates) ? kRates[at] : 0;
}

/// How a device's link was over the window.
struct LinkSeen {
  const DeviceView* now = nullptr;
  double in = kNotKnown, out = kNotKnown;  // mean bytes/s
  int views = 0, slow_views = 0;           // that tell its generation; that are below the highest one
};

LinkSeen link_of(const Case& c, const DeviceView& now) {
  LinkSeen seen;
  seen.now = &now;
  double in = 0, out = 0;
  int in_views = 0, out_views = 0;
  const auto add = [](double value, double* sum, int* count) {
    if (std::isnan(value)) return;
    *sum += value;
    ++*count;
  };
  for (std::size_t v = c.activity.first_view; v < c.series.views.size(); ++v) {
    if (!c.series.views[v].devices) continue;
    for (const DeviceView& then : *c.series.views[v].devices) {
      if (then.index != now.index) continue;
      add(then.pcie_in, &in, &in_views);
      add(then.pcie_out, &out, &out_views);
      seen.views += !std::isnan(then.link_generation);
      seen.slow_views += then.link_generation < now.max_link_generation;
    }
  }
  if (in_views >= kLeastViews) seen.in = in / in_views;
  if (out_views >= kLeastViews) seen.out = out / out_views;
  return seen;
}

void add_narrow_or_slow(const LinkSeen& link, Judgements* all) {
  const DeviceView& device = *link.now;
  std::string reason;
  if (device.link_width < device.max_link_width)
    reason = fmt::format("GPU {} runs on {:.0f} of {:.0f} PCIe lanes", device.index, device.link_width,
                         device.max_link_width);
  else if (link.views >= kLeastViews && link.slow_views == link.views)
    reason = fmt::format("GPU {}'s link runs at PCIe generation {:.0f} under load, {:.0f} is possible",
                         device.index, device.link_generation, device.max_link_generation);
  if (reason.empty()) return;
  Judgement j = hardware_judgement("link", Level::kWarn, reason);
  j.threshold = "warn: fewer lanes, or a lower generation all the time, under load";
  j.advice = "slot or riser";
  j.next = fmt::format("nvidia-smi -i {} -q -d PCIE", device.index);
  all->push_back(std::move(j));
}

/// The busiest link: data that must cross it, or gradients that go through the machine.
void add_traffic(const Case& c, const std::vector<LinkSeen>& links, Judgements* all) {
  const auto larger_way = [](const LinkSeen& link) {
    return std::max(std::isnan(link.in) ? 0 : link.in, std::isnan(link.out) ? 0 : link.out);
  };
  const LinkSeen* most = nullptr;
  for (const LinkSeen& link : links)
    if ((!std::isnan(link.in) || !std::isnan(link.out)) &&
        (most == nullptr || larger_way(link) > larger_way(*most)))
      most = &link;
  if (most == nullptr) return;
  const DeviceView& device = *most->now;
  const double limit = device.link_width * lane_bytes_per_second(device.link_generation);
  const double share = limit > 0 ? larger_way(*most) / limit : kNotKnown;
  Judgement j = hardware_judgement("pcie", Level::kOk, "");
  j.reason = fmt::format("GPU {} over PCIe: {}/s in, {}/s out", device.index,
                         std::isnan(most->in) ? "?" : human_bytes(most->in),
                         std::isnan(most->out) ? "?" : human_bytes(most->out));
  if (!std::isnan(share))
    j.reason += fmt::format(", {:.0f} % of what {:.0f} lanes of generation {:.0f} carry", 100 * share,
                            device.link_width, device.link_generation);
  j.value = share;
  j.unit = "share";
  j.window_seconds = c.activity.span_seconds;
  j.threshold = fmt::format("warn > {}", c.thresholds.pcie_warn);
  if (share > c.thresholds.pcie_warn) {
    j.level = Level::kWarn;
    j.advice =
        "the link is the limit: states of fewer layers or in fewer bits, nothing copied back each step";
  }
  all->push_back(std::move(j));
}

}  // namespace

Judgements judge_link(const Case& c) {
  Judgements all;
  const auto& devices = c.series.views.back().devices;
  if (!devices) return all;
  std::vector<LinkSeen> links;
  for (const DeviceView& device : *devices) links.push_back(link_of(c, device));
  if (c.activity.busy_pct > kBusyPct)
    for (const LinkSeen& link : links) add_narrow_or_slow(link, &all);
  add_traffic(c, links, &all);
  return all;
}

}  // namespace eaglet::monitor
