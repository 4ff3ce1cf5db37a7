#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace eaglet {

/// One sample of a Prometheus text page: name{label="value",...} number.
struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

/// The samples of a page; lines that are none (comments, nonsense) are left out.
std::vector<MetricSample> parse_metrics(std::string_view text);

/// Sum over all samples of that name (a server with several engines has one each); `fallback` when there is
/// none.
double metric_sum(const std::vector<MetricSample>& samples, std::string_view name, double fallback);

}  // namespace eaglet
