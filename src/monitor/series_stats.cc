#include "monitor/series_stats.h"

#include <algorithm>
#include <cmath>

namespace eaglet::monitor {

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return LogFacts::kNone;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> values_of(const std::vector<MetricSample>& samples) {
  std::vector<double> values;
  values.reserve(samples.size());
  for (const MetricSample& sample : samples) values.push_back(sample.value);
  return values;
}

Ends quarter_medians(const std::vector<MetricSample>& samples) {
  std::vector<double> values = values_of(samples);
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  Ends ends;
  ends.points = values.size();
  if (values.empty()) return ends;
  const auto quarter = static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, values.size() / 4));
  ends.first = median(std::vector<double>(values.begin(), values.begin() + quarter));
  ends.last = median(std::vector<double>(values.end() - quarter, values.end()));
  return ends;
}

std::size_t count_spikes(const std::vector<MetricSample>& samples, double z, std::size_t window) {
  std::size_t spikes = 0;
  const std::vector<double> values = values_of(samples);
  for (std::size_t i = window; i < values.size(); ++i) {
    const std::vector<double> before(values.begin() + static_cast<std::ptrdiff_t>(i - window),
                                     values.begin() + static_cast<std::ptrdiff_t>(i));
    const double level = median(before);
    std::vector<double> off;
    for (const double value : before) off.push_back(std::abs(value - level));
    const double deviation =
        std::max(1.4826 * median(off), 1e-12);  // the median deviation of a normal spread
    if (values[i] > level + z * deviation && values[i] > 1.2 * level) ++spikes;
  }
  return spikes;
}

std::vector<MetricSample> with_extremes(const std::vector<MetricSample>& samples, std::size_t most) {
  if (samples.size() <= most) return samples;
  std::vector<MetricSample> out;
  const std::size_t stretches = std::max<std::size_t>(1, most / 2);
  for (std::size_t s = 0; s < stretches; ++s) {
    const std::size_t begin = s * samples.size() / stretches, end = (s + 1) * samples.size() / stretches;
    std::size_t low = begin, high = begin;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(samples[high].value)) break;  // not finite is the greatest of all
      if (!(samples[i].value >= samples[low].value)) low = std::isfinite(samples[i].value) ? i : low;
      if (!std::isfinite(samples[i].value) || samples[i].value > samples[high].value) high = i;
    }
    out.push_back(samples[std::min(low, high)]);
    if (low != high) out.push_back(samples[std::max(low, high)]);
  }
  return out;
}

double last_median(const std::vector<MetricSample>& samples, std::size_t count) {
  const std::size_t from = samples.size() > count ? samples.size() - count : 0;
  return median(values_of({samples.begin() + static_cast<std::ptrdiff_t>(from), samples.end()}));
}

}  // namespace eaglet::monitor
