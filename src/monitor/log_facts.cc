#include "monitor/log_facts.h"

#include <algorithm>
#include <cmath>

#include "monitor/text_scan.h"

namespace eaglet::monitor {

const std::vector<MetricSample>& LogFacts::series(const std::string& name) const {
  static const std::vector<MetricSample> none;
  const auto it = metrics.find(name);
  return it == metrics.end() ? none : it->second;
}

std::vector<std::string> LogFacts::loss_names() const {
  std::vector<std::string> names;
  for (int k = 0; k < 64; ++k) {
    const std::string name = "loss_" + std::to_string(k);
    if (metrics.count(name) == 0) break;
    names.push_back(name);
  }
  if (names.empty() && metrics.count("loss") != 0) names.emplace_back("loss");
  return names;
}

std::string LogFacts::first_loss_name() const {
  const auto names = loss_names();
  return names.empty() ? "" : names.front();
}

double LogFacts::step_interval() const {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < step_times.size(); ++i) {
    const double steps = static_cast<double>(step_times[i].first - step_times[i - 1].first);
    const double seconds = step_times[i].second - step_times[i - 1].second;
    if (steps > 0 && seconds >= 0) gaps.push_back(seconds / steps);
  }
  if (gaps.empty()) return seconds_per_step;
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2), gaps.end());
  return gaps[gaps.size() / 2];
}

const LogError* LogFacts::cause() const {
  for (const LogError& error : errors)
    if (!error.consequence) return &error;
  return errors.empty() ? nullptr : &errors.front();
}

}  // namespace eaglet::monitor
