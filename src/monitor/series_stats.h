#pragma once

#include <vector>

#include "monitor/log_facts.h"

namespace eaglet::monitor {

/// Median; NaN of nothing. Values that are not finite are left out.
double median(std::vector<double> values);
std::vector<double> values_of(const std::vector<MetricSample>& samples);
/// Of the newest `count`, or of all when there are fewer.
double last_median(const std::vector<MetricSample>& samples, std::size_t count);
/// Median of the first and of the last quarter of the finite values.
struct Ends {
  double first = 0, last = 0;
  std::size_t points = 0;
};
Ends quarter_medians(const std::vector<MetricSample>& samples);
/// Places where a value stands more than `z` robust deviations above the `window` values before it, and more
/// than a fifth above their level.
std::size_t count_spikes(const std::vector<MetricSample>& samples, double z, std::size_t window);

/// At most `most` samples (at least 2) that show the same curve: of each stretch the least and the greatest,
/// in their order, so that a spike or a value that is not finite is never thinned away.
std::vector<MetricSample> with_extremes(const std::vector<MetricSample>& samples, std::size_t most);

}  // namespace eaglet::monitor
