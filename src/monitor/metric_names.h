#pragma once

#include <span>
#include <string>
#include <string_view>

namespace eaglet::monitor {

/// One metric name of a foreign trainer in our words.
struct MetricName {
  std::string name;         // canonical (log_facts.h), "step", "total", "epoch"; empty: not a metric of ours
  double scale = 1;         // multiply the printed value by this (milliseconds to seconds)
  bool validation = false;  // over held-out data
};

/// "train/loss_0", "ploss_2", "eval/loss", "lr/AdamW", "perf/data_wait_time_s", "tok_s", ...
MetricName canonical_metric(std::string_view printed);

/// The kinds of ops whose time on a device our own log tells: "products", "attention", ...
std::span<const std::string_view> device_ops();
/// The canonical name of such a time: "device_products_seconds".
std::string device_time_metric(std::string_view op);

}  // namespace eaglet::monitor
