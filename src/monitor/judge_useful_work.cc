// What of the machine's power becomes learning: MFU, and what a run costs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "monitor/draft_cost.h"
#include "monitor/judges.h"

namespace eaglet::monitor {
namespace {

struct Peak {
  double flops = 0;
  const char* source = "";
};
/// Of one rank's device: declared (--peak, peak_tflops), else by the board's name.
Peak peak_of(const Case& c) {
  if (c.thresholds.peak_tflops > 0) return {c.thresholds.peak_tflops * 1e12, "declared"};
  if (c.activity.devices.empty()) return {};
  return {device_peak_flops(c.activity.devices.front().name), "by the board's name"};
}

/// Useful tokens only; with the padding that the machine works through as well, it does more.
std::string with_padding(const Case& c, double mfu) {
  const double fill = packing_fill(c);
  if (!(fill > 0.01 && fill < 0.98)) return {};
  return fmt::format(", {:.0f} % with the padding", 100 * mfu / fill);
}

/// Power and arithmetic tell of the same work; far apart, one of them is counted wrong. Power is drawn for
/// the padding too, so it is compared with the arithmetic on all positions.
void compare_with_power(const Case& c, Judgement* j) {
  const double r = c.activity.above_idle, fill = packing_fill(c);
  const double work = fill > 0.01 && fill < 0.98 ? std::min(1.0, j->value / fill) : j->value;
  if (!(r > 0.05) || !(work > 0) || c.activity.changing) return;
  const double apart = std::max(work / r, r / work);
  j->threshold += fmt::format("; remark: {} times apart from the power's share, warn: {} times",
                              c.thresholds.mfu_power_remark, c.thresholds.mfu_power_factor);
  if (apart < c.thresholds.mfu_power_remark) return;
  j->reason += fmt::format("; {:.1f} times {} than the power (r {:.2f}) lets expect", apart,
                           work < r ? "less" : "more", r);
  if (apart < c.thresholds.mfu_power_factor) return;
  j->reason += ": is the token count or the shape right?";
  if (j->level != Level::kOk) return;
  j->level = Level::kWarn;
  j->advice =
      work < r ? "check that tokens/s counts all real tokens of a rank, and the shape; else memory-bound work"
               : "check the peak (--peak), that tokens/s is one rank's, and the shape";
}

void add_mfu(const Case& c, Judgements* all) {
  const auto& printed = c.series.log.series("mfu_ratio");
  const auto shape = draft_shape(c.config);
  const auto& speed = c.series.log.series("tokens_per_second");
  const Peak peak = peak_of(c);
  const bool declared = c.thresholds.peak_tflops > 0;
  const bool computable = shape && shape->ttt_steps >= 1 && !speed.empty() && peak.flops > 0;
  Judgement j = hardware_judgement("mfu", Level::kOk, "");
  j.unit = "share";
  if (!printed.empty() && !(declared && computable)) {
    // The trainer knows its own work best.
    j.value = printed.back().value;
    j.reason = fmt::format("MFU {:.0f} %", 100 * j.value);
    j.threshold = "as the run prints it";
    compare_with_power(c, &j);
    return all->push_back(std::move(j));
  }
  if (!computable) return;
  // Printed by rank 0 alone, so one device's worth of work against one device's peak.
  const double flop = training_flop_per_token(*shape);
  j.value = speed.back().value * flop / peak.flops;
  j.level = j.value < c.thresholds.mfu_warn ? Level::kWarn : Level::kOk;
  j.reason =
      fmt::format("MFU {:.0f} %{} ({:.0f} tokens/s x {:.3g} GFLOP of {:.4g} TFLOP/s {})", 100 * j.value,
                  with_padding(c, j.value), speed.back().value, flop / 1e9, peak.flops / 1e12, peak.source);
  j.threshold = fmt::format("warn < {}; 0.2-0.4 is usual", c.thresholds.mfu_warn);
  if (j.level == Level::kWarn) j.advice = "look at fill, data wait, tiny kernels, padding";
  compare_with_power(c, &j);
  all->push_back(std::move(j));
}

/// Device-hours so far and to go.
void add_cost(const Case& c, Judgements* all) {
  const auto devices = static_cast<double>(c.activity.devices.size());
  if (devices == 0 || std::isnan(c.activity.age_seconds) || c.state.phase != Phase::kTrain) return;
  const double so_far = devices * c.activity.age_seconds / 3600;
  Judgement j = hardware_judgement("cost", Level::kOk, fmt::format("{:.2f} GPU-hours so far", so_far));
  j.value = so_far;
  j.unit = "GPU-hours";
  j.threshold = "none";
  const double total = std::max(static_cast<double>(c.series.log.total_steps),
                                c.config.number("total_steps").value_or(0)),
               step = static_cast<double>(c.activity.last_step), interval = c.series.log.step_interval();
  if (total > step && step >= 0 && interval > 0) {
    j.reason += fmt::format(", {:.2f} to go", devices * interval * (total - step) / 3600);
    const auto& speed = c.series.log.series("tokens_per_second");
    if (!speed.empty() && speed.back().value > 0)
      j.reason +=
          fmt::format(" ({:.3g} M tokens of a rank)", speed.back().value * interval * (total - step) / 1e6);
  }
  all->push_back(std::move(j));
}

}  // namespace

Judgements judge_useful_work(const Case& c) {
  Judgements all;
  add_mfu(c, &all);
  add_cost(c, &all);
  return all;
}

}  // namespace eaglet::monitor
