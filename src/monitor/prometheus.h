#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "monitor/verdict.h"

namespace eaglet::monitor {

/// The verdict in Prometheus' text exposition (version 0.0.4). No pid, step or path in labels.
std::string prometheus_text(const Verdict& verdict, const std::string& version);
constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

struct PrometheusSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};
/// The same grammar back, strictly: HELP and TYPE before the samples of a name, samples of a name together,
/// legal names. kDataLoss with the line number.
Result<std::vector<PrometheusSample>> parse_prometheus(std::string_view text);

/// Of a page of others, as far as it can be read: samples whose name begins with one of `prefixes`.
/// Histograms, types and lines that are no samples are passed over.
std::vector<PrometheusSample> read_foreign_metrics(std::string_view text,
                                                   std::initializer_list<const char*> prefixes);

}  // namespace eaglet::monitor
