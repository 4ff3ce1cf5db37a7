#pragma once

#include <deque>
#include <map>

#include "monitor/view.h"

namespace eaglet::monitor {

/// What a device draws when nobody uses it: the lowest mean over a whole minute in which the driver listed no
/// process on it and it was not busy. Better than a share of the limit, where such a minute was seen.
class IdlePower {
 public:
  /// Adds a view (about one a second); `watts` keeps the lowest of each device.
  void add(const RunView& view, std::map<std::int64_t, double>* watts);

 private:
  struct Reading {
    double seconds, watts;
  };
  std::map<std::int64_t, std::deque<Reading>> free_;  // the last minute without a process
};

}  // namespace eaglet::monitor
