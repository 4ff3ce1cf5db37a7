// Ranks that were asked for against those that are there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/http_get.h"
#include "monitor/judges.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

double whole_of(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? 0 : static_cast<double>(whole_number(found->second).value_or(0));
}

/// "torchrun --nproc_per_node 4": of the launchers that are still there.
double asked_of_launcher(const Case& c) {
  const auto& processes = c.series.views.back().processes;
  for (const std::size_t i : c.activity.roles.launchers) {
    const auto parts = words((*processes)[i].command);
    for (std::size_t at = 0; at < parts.size(); ++at) {
      std::string flag = lower(parts[at].substr(0, parts[at].find('=')));
      std::replace(flag.begin(), flag.end(), '-', '_');
      if (flag != "__nproc_per_node") continue;
      const std::size_t equals = parts[at].find('=');
      const std::string_view value = equals != std::string_view::npos ? parts[at].substr(equals + 1)
                                     : at + 1 < parts.size()          ? parts[at + 1]
                                                                      : std::string_view();
      return static_cast<double>(whole_number(value).value_or(0));  // "gpu" and "auto" are no number
    }
  }
  return 0;
}

struct Asked {
  double ranks = 0;
  bool here = false;  // all of them on this machine
};
/// What the ranks were told at their start; else what the configuration says, of all machines together.
Asked ranks_asked(const Case& c) {
  const auto& environment = c.series.environment;
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const double ranks = whole_of(environment, name); ranks > 0) return {ranks, true};
  if (const double ranks = asked_of_launcher(c); ranks > 0) return {ranks, true};
  double world = whole_of(environment, "WORLD_SIZE");
  // Nobody on another machine can meet the others at a loopback address.
  const auto address = environment.find("MASTER_ADDR");
  if (world > 0 && address != environment.end() && is_loopback(address->second)) return {world, true};
  if (const double configured = c.config.number("world_size").value_or(0); configured > 0) world = configured;
  return {world, false};
}

/// Ranks that never came: the others wait for them in their first collective, for ever. One that was there
/// and left is rank_gone's; a run that goes on has all that it needs.
bool hopeless(const Case& c, const Asked& asked) {
  const bool goes_on = c.state.state == RunState::kRunning || c.state.state == RunState::kFinished;
  return asked.here && !goes_on && c.activity.gone_ranks.empty();
}

void add_ranks(const Case& c, Judgements* all) {
  const Asked asked = ranks_asked(c);
  const std::size_t seen = c.activity.ranks.size();
  if (asked.ranks <= 0 || !c.activity.processes_known || seen == 0) return;
  const bool fits = static_cast<double>(seen) >= asked.ranks;
  const bool young = c.activity.age_seconds < c.thresholds.start_seconds && c.activity.last_step < 0;
  Judgement j =
      configuration_judgement("ranks", Level::kOk, fmt::format("{} of {:.0f} ranks", seen, asked.ranks));
  j.value = static_cast<double>(seen);
  j.threshold = fmt::format(
      "{:.0f} ranks, each with a GPU of its own; crit: on this machine fewer than that {} "
      "after the start, and no step",
      asked.ranks, human_duration(c.thresholds.start_seconds));
  if (!fits && young) {
    j.reason += " so far";
  } else if (!fits) {
    j.level = hopeless(c, asked) ? Level::kCrit : Level::kWarn;
    if (!std::isnan(c.activity.age_seconds))
      j.reason += fmt::format(" after {}", human_duration(c.activity.age_seconds));
    j.advice = asked.here
                   ? "a rank never started: its launcher's output says why; end the others and start again"
                   : "a rank is missing, or the rest run on another machine";
  }
  std::size_t holding = 0;
  for (const DeviceActivity& device : c.activity.devices) holding += device.used_bytes > 1e9;
  const bool trains = c.state.phase == Phase::kTrain && c.activity.last_step > 0;
  if (fits && trains && c.activity.devices.size() >= seen && holding < seen) {
    j.level = Level::kWarn;
    j.reason = fmt::format("{} ranks, {} GPUs hold memory", seen, holding);
    j.advice = "two ranks may share a GPU: compare LOCAL_RANK and CUDA_VISIBLE_DEVICES of each";
  }
  all->push_back(std::move(j));
}

}  // namespace

Judgements judge_ranks(const Case& c) {
  Judgements all;
  add_ranks(c, &all);
  return all;
}

}  // namespace eaglet::monitor
