#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "monitor/verdict.h"

namespace eaglet::apps {

/// What a watcher remembers of the run beyond its newest view: a bounded number of points, thinned to the
/// least and greatest of each bucket so that spikes stay.
struct HistoryPoint {
  double wall = 0;
  std::int64_t step = -1;
  double busy_pct = monitor::kNotKnown, power_w = monitor::kNotKnown, cores = monitor::kNotKnown,
         used_bytes = monitor::kNotKnown;
  std::vector<double> device_busy_pct, device_power_w;  // of each of the run's GPUs, where there are several
};
/// One look, as far as a history keeps it (also in a file: history_file.h).
struct HistoryMoment {
  HistoryPoint point;
  monitor::RunState state = monitor::RunState::kUnknownState;
  monitor::Phase phase = monitor::Phase::kStart;
  monitor::Level level = monitor::Level::kUnknown;
  std::string headline;
  /// What makes an event when it changes.
  std::string words() const;
};
HistoryMoment moment_of(const monitor::Verdict& verdict);

struct HistoryEvent {
  double wall = 0;
  monitor::Level level = monitor::Level::kOk;
  std::string text;
};

/// A time in which the run was in one phase and was watched without a hole of half a minute.
struct PhaseSpan {
  monitor::Phase phase = monitor::Phase::kStart;
  double from = 0, to = 0;  // by the wall clock
};

class WatchHistory {
 public:
  static constexpr std::size_t kMostPoints = 2000, kMostEvents = 200, kMostSpans = 500;
  /// Adds a point, and an event when state, phase or level changed.
  void add(const monitor::Verdict& verdict);
  /// The same of an earlier watcher's look.
  void add(const HistoryMoment& moment);
  const std::vector<HistoryPoint>& points() const { return points_; }
  const std::deque<HistoryEvent>& events() const { return events_; }
  const std::deque<PhaseSpan>& phases() const { return phases_; }
  /// Since when, by the wall clock, a judgement of that name has been at its present level; NaN: never seen.
  double level_since(const std::string& name) const;
  /// Whether nobody watched for a while between these two moments.
  bool hole_between(double from, double to) const;

 private:
  std::vector<HistoryPoint> points_;
  std::deque<HistoryEvent> events_;
  std::deque<PhaseSpan> phases_;
  std::string last_;
  std::map<std::string, std::pair<monitor::Level, double>> levels_;  // since when
};

}  // namespace eaglet::apps
