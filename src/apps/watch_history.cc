#include "apps/watch_history.h"

#include <fmt/format.h>

#include <cmath>

namespace eaglet::apps {
namespace {

constexpr std::size_t kMostDevices = 16;  // curves in one chart
constexpr double kHoleSeconds = 30;

/// Of each four points of the older half the calmest two go.
void thin(std::vector<HistoryPoint>* points) {
  const std::size_t half = points->size() / 2;
  std::vector<HistoryPoint> kept;
  for (std::size_t i = 0; i + 4 <= half; i += 4) {
    std::size_t least = i, most = i;
    for (std::size_t j = i; j < i + 4; ++j) {
      const auto weight = [&](std::size_t k) {
        return std::isnan((*points)[k].power_w) ? (*points)[k].cores : (*points)[k].power_w;
      };
      if (weight(j) < weight(least)) least = j;
      if (weight(j) > weight(most)) most = j;
    }
    kept.push_back((*points)[std::min(least, most)]);
    if (least != most) kept.push_back((*points)[std::max(least, most)]);
  }
  kept.insert(kept.end(), points->begin() + static_cast<std::ptrdiff_t>(half / 4 * 4), points->end());
  *points = std::move(kept);
}

}  // namespace

bool WatchHistory::hole_between(double from, double to) const {
  for (std::size_t i = 1; i < phases_.size(); ++i)
    if (phases_[i].from - phases_[i - 1].to > kHoleSeconds && phases_[i - 1].to >= from &&
        phases_[i].from <= to)
      return true;
  return false;
}

double WatchHistory::level_since(const std::string& name) const {
  const auto it = levels_.find(name);
  return it == levels_.end() ? monitor::kNotKnown : it->second.second;
}

std::string HistoryMoment::words() const {
  return std::string(monitor::state_word(state)) + " " + monitor::phase_word(phase) + " " +
         monitor::level_word(level);
}

HistoryMoment moment_of(const monitor::Verdict& verdict) {
  HistoryMoment moment;
  moment.state = verdict.state.state;
  moment.phase = verdict.state.phase;
  moment.level = verdict.level;
  moment.headline = verdict.headline;
  HistoryPoint& point = moment.point;
  point.wall = verdict.wall;
  point.step = verdict.step;
  point.busy_pct = verdict.activity.busy_pct;
  point.power_w = verdict.activity.power_w;
  point.cores = verdict.activity.tree_cores;
  double used = 0;
  const bool several = verdict.activity.devices.size() > 1 && verdict.activity.devices.size() <= kMostDevices;
  for (const auto& device : verdict.activity.devices) {
    if (!std::isnan(device.used_bytes)) used += device.used_bytes;
    if (!several) continue;
    point.device_busy_pct.push_back(device.busy_pct);
    point.device_power_w.push_back(device.power_w);
  }
  if (!verdict.activity.devices.empty()) point.used_bytes = used;
  return moment;
}

void WatchHistory::add(const monitor::Verdict& verdict) {
  for (const monitor::Judgement& j : verdict.judgements) {
    const auto it = levels_.find(j.name);
    if (it == levels_.end() || it->second.first != j.level) levels_[j.name] = {j.level, verdict.wall};
  }
  add(moment_of(verdict));
}

void WatchHistory::add(const HistoryMoment& moment) {
  const double wall = moment.point.wall;
  const bool goes_on = !phases_.empty() && wall - phases_.back().to <= kHoleSeconds;
  if (goes_on) phases_.back().to = wall;  // up to here, then perhaps another phase
  if (!goes_on || phases_.back().phase != moment.phase) phases_.push_back({moment.phase, wall, wall});
  if (phases_.size() > kMostSpans) phases_.pop_front();
  points_.push_back(moment.point);
  if (points_.size() > kMostPoints) thin(&points_);
  const std::string now = moment.words();
  if (now == last_) return;
  last_ = now;
  events_.push_back({wall, moment.level,
                     fmt::format("{} ({})  {}", monitor::state_word(moment.state),
                                 monitor::phase_word(moment.phase), moment.headline)});
  if (events_.size() > kMostEvents) events_.pop_front();
}

}  // namespace eaglet::apps
