#include "monitor/metric_names.h"

#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

struct Alias {
  std::string_view printed;
  const char* name;
  double scale = 1;
};

// Names without a depth. What stands before the last '/' was dropped, except where it is part of the name.
constexpr Alias kAliases[] = {
    {"loss", "loss"},
    {"train_loss", "loss"},
    {"total_loss", "loss"},
    {"training_loss", "loss"},
    {"acc", "acc"},
    {"train_acc", "acc"},
    {"accuracy", "acc"},
    {"lr", "lr"},
    {"learning_rate", "lr"},
    {"grad_norm", "grad_norm"},
    {"gnorm", "grad_norm"},
    {"norm", "grad_norm"},
    {"tokens_per_s", "tokens_per_second"},
    {"tokens_per_second", "tokens_per_second"},
    {"tok_s", "tokens_per_second"},
    {"tok/s", "tokens_per_second"},
    {"tokens/s", "tokens_per_second"},
    {"num_input_tokens_seen", "tokens_total"},  // transformers
    {"num_tokens", "tokens_total"},             // TRL: since the start
    {"tokens_seen", "tokens_total"},
    {"tokens_total", "tokens_total"},  // ours
    {"step_ms", "step_seconds", 1e-3},
    {"step_seconds", "step_seconds"},
    {"step_time", "step_seconds"},
    {"optimizer_step_time_s", "step_seconds"},
    {"data_ms", "data_wait_seconds", 1e-3},
    {"fetch_ms", "data_wait_seconds", 1e-3},
    {"fwd_ms", "forward_seconds", 1e-3},
    {"bwd_ms", "backward_seconds", 1e-3},
    {"opt_ms", "optimizer_seconds", 1e-3},
    {"data_wait_seconds", "data_wait_seconds"},
    {"data_wait_time_s", "data_wait_seconds"},
    {"fetch_frac", "data_wait_share"},
    {"fill", "fill_ratio"},
    {"fill_ratio", "fill_ratio"},
    {"mfu", "mfu_ratio"},
    {"mfu_ratio", "mfu_ratio"},
    {"tau", "acceptance_length"},
    {"acceptance_length", "acceptance_length"},
    {"accept_length", "acceptance_length"},
    {"eval_loss", "val_loss"},
    {"val_loss", "val_loss"},
    {"valid_loss", "val_loss"},
    {"loss_epoch", "val_loss"},
    {"global_samples_per_second", "samples_per_second"},
    {"train_samples_per_second", "samples_per_second"},
    {"epoch", "epoch"},
    {"step", "step"},
    {"global_step", "step"},
    {"iter", "step"},
    {"iteration", "step"},
};

// Names with a depth: loss_0, ploss_0, full_acc_1, acceptance_rate_2.
constexpr Alias kByDepth[] = {{"loss", "loss_"},         {"ploss", "loss_"},
                              {"full_acc", "full_acc_"}, {"cond_acc", "cond_acc_"},
                              {"acc", "acc_"},           {"acceptance_rate", "acceptance_rate_"}};

// Our own log's device time by kind of op: device_products_seconds, in event files device_products_ms.
constexpr std::string_view kDeviceOps[] = {"products",    "attention", "head_loss", "norms",
                                           "elementwise", "optimizer", "copies",    "states",
                                           "states_wait", "reduction"};

MetricName device_time(std::string_view part) {
  MetricName metric;
  constexpr std::string_view kBegin = "device_";
  if (!starts_with(part, kBegin)) return metric;
  part.remove_prefix(kBegin.size());
  for (const std::string_view op : kDeviceOps) {
    if (!starts_with(part, op)) continue;
    const std::string_view unit = part.substr(op.size());
    if (unit != "_seconds" && unit != "_ms") continue;
    metric.name = device_time_metric(op);
    metric.scale = unit == "_ms" ? 1e-3 : 1;
  }
  return metric;
}

std::string_view last_part(std::string_view printed) {
  const std::size_t slash = printed.rfind('/');
  if (slash == std::string_view::npos) return printed;
  if (starts_with(printed, "lr/")) return "lr";  // one per optimizer: lr/AdamW, lr/Muon
  const std::string_view part = printed.substr(slash + 1);
  return part == "s" ? printed : part;  // tok/s
}

bool is_validation(std::string_view printed) {
  return starts_with(printed, "val/") || starts_with(printed, "eval/") || starts_with(printed, "valid/") ||
         starts_with(printed, "val_") || starts_with(printed, "eval_");
}

/// "loss_0_epoch" -> "loss_0": what speculators adds to values over a whole validation.
std::string_view without_epoch(std::string_view name) {
  constexpr std::string_view kEnd = "_epoch";
  if (name.size() > kEnd.size() && name.substr(name.size() - kEnd.size()) == kEnd)
    name.remove_suffix(kEnd.size());
  return name;
}

std::string with_depth(std::string_view name) {
  const std::size_t bar = name.rfind('_');
  if (bar == std::string_view::npos || bar + 1 >= name.size() || name.size() - bar > 3) return {};
  const auto depth = whole_number(name.substr(bar + 1));
  if (!depth) return {};
  for (const Alias& alias : kByDepth)
    if (name.substr(0, bar) == alias.printed) return alias.name + std::to_string(*depth);
  return {};
}

}  // namespace

std::string device_time_metric(std::string_view op) {
  return "device_" + std::string(op) + "_seconds";
}

std::span<const std::string_view> device_ops() {
  return kDeviceOps;
}

MetricName canonical_metric(std::string_view printed) {
  MetricName metric;
  if (printed.empty() || printed.size() > 64) return metric;
  const std::string whole = lower(printed);
  metric.validation = is_validation(whole);
  std::string_view part = last_part(whole);
  if (metric.validation) part = without_epoch(part);
  if (MetricName time = device_time(part); !time.name.empty()) return time;
  metric.name = with_depth(part);
  for (const Alias& alias : kAliases) {
    if (!metric.name.empty()) break;
    if (part != alias.printed) continue;
    metric.name = alias.name;
    metric.scale = alias.scale;
  }
  if (metric.name == "val_loss") metric.validation = true;
  if (metric.name == "step" || metric.name == "epoch" || metric.name.empty()) return metric;
  if (metric.validation && !starts_with(metric.name, "val_")) metric.name = "val_" + metric.name;
  return metric;
}

}  // namespace eaglet::monitor
