// Where learning leads: a plateau, clipping all the time, what comes of it on a server, ranks that drift
// apart.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "monitor/judges.h"
#include "monitor/series_stats.h"

namespace eaglet::monitor {
namespace {

/// The best smoothed loss has not become better for long, and the schedule is not at its end: information,
/// late plateaus are normal.
void add_plateau(const Case& c, Judgements* all) {
  const std::string name = c.series.log.first_loss_name();
  const auto& loss = c.series.log.series(name);
  constexpr std::size_t kSmooth = 20;
  if (name.empty() || loss.size() < 3 * kSmooth || loss.back().step < 0) return;
  const std::vector<double> values = values_of(loss);
  double best = kNotKnown;
  std::int64_t best_step = -1;
  for (std::size_t i = 0; i + kSmooth <= values.size() && i + kSmooth <= loss.size(); i += kSmooth / 4) {
    const double level = median({values.begin() + static_cast<std::ptrdiff_t>(i),
                                 values.begin() + static_cast<std::ptrdiff_t>(i + kSmooth)});
    if (!std::isnan(best) && level > (1 - c.thresholds.plateau_gain) * best) continue;
    best = level;
    best_step = loss[i + kSmooth - 1].step;
  }
  const double steps = static_cast<double>(loss.back().step - best_step);
  const double total = c.config.number("total_steps").value_or(0);
  const bool at_end = total > 0 && static_cast<double>(loss.back().step) > 0.9 * total;
  if (best_step < 0 || steps < c.thresholds.plateau_steps || at_end) return;
  Judgement j = learning_judgement("plateau", Level::kOk,
                                   fmt::format("{} is no better than {:.4g} since step {}, {:.0f} steps ago",
                                               name, best, best_step, steps));
  j.value = steps;
  j.unit = "steps";
  j.threshold = fmt::format("told after {:.0f} steps without {:.1f} %", c.thresholds.plateau_steps,
                            100 * c.thresholds.plateau_gain);
  j.advice = "late plateaus are normal; compare the held-out acceptance length before stopping";
  all->push_back(std::move(j));
}

/// Gradients cut in nearly every step: the clip decides the step's length, not the learning rate.
void add_clipping(const Case& c, Judgements* all) {
  double most = 0;
  for (const char* key : {"max_grad_norm", "grad_clip", "gradient_clip_val", "clip_grad_norm"})
    if (const auto value = c.config.number(key); value && *value > 0) most = *value;
  const auto& norm = c.series.log.series("grad_norm");
  if (most <= 0 || norm.size() < 50) return;
  std::size_t cut = 0;
  for (const MetricSample& sample : norm) cut += sample.value > most;
  const double share = static_cast<double>(cut) / static_cast<double>(norm.size());
  Judgement j = learning_judgement("clipping", Level::kOk,
                                   fmt::format("gradients are cut in {:.0f} % of the steps", 100 * share));
  j.value = share;
  j.unit = "share";
  j.threshold =
      fmt::format("told above {:.0f} %; grad norm > {:.3g} is cut", 100 * c.thresholds.clip_share, most);
  if (share > c.thresholds.clip_share)
    j.advice = "the clip sets the length of a step: a higher clip or a lower lr";
  all->push_back(std::move(j));
}

double trained_acceptance(const LogFacts& log) {
  for (const char* name : {"val_acceptance_length", "acceptance_length"})
    if (!log.series(name).empty()) return last_median(log.series(name), 10);
  double length = 1;
  bool any = false;
  for (int k = 0; k < 64; ++k) {
    const auto& full = log.series("full_acc_" + std::to_string(k));
    if (full.empty()) break;
    any = true;
    length += last_median(full, 10);
  }
  return any ? length : kNotKnown;
}

/// Good in training and useless on a server: an error of the export or of the ids, not of the learning.
void add_served(const Case& c, Judgements* all) {
  const auto& printed = c.series.log.series("server_acceptance_length");
  const double told = printed.empty() ? c.series.served_acceptance : last_median(printed, 10);
  const double served = std::isnan(told) ? c.activity.server.accepted_length : told;
  const double trained = trained_acceptance(c.series.log);
  if (std::isnan(served)) return;
  Judgement j =
      learning_judgement("served", Level::kOk, fmt::format("{:.2f} tokens per pass on a server", served));
  if (!std::isnan(trained)) j.reason += fmt::format(", {:.2f} in training", trained);
  j.value = served;
  j.unit = "tokens per pass";
  j.threshold = fmt::format("crit < {} with more than {} in training", c.thresholds.served_min,
                            c.thresholds.trained_min);
  if (served < c.thresholds.served_min && trained > c.thresholds.trained_min) {
    j.level = Level::kCrit;
    j.advice = "export or mapping error: check d2t, rotary settings, captured layer ids and tokenizer";
    j.next = "eaglet inspect DRAFT --verify";
  }
  all->push_back(std::move(j));
}

/// Our own trainer compares the weights of all ranks at each checkpoint.
void add_replicas(const Case& c, Judgements* all) {
  for (const LogError& error : c.series.log.errors) {
    if (error.kind != "ranks_differ") continue;
    Judgement j = learning_judgement("replicas", Level::kCrit, error.text);
    j.threshold = "crit: any difference";
    j.advice = "check memory, processor and libraries of that rank's machine; go on from the last checkpoint";
    all->push_back(std::move(j));
    return;
  }
}

}  // namespace

Judgements judge_outcome(const Case& c) {
  Judgements all;
  if (!c.series.log_known && !c.activity.server.known) return all;
  add_plateau(c, &all);
  add_clipping(c, &all);
  add_served(c, &all);
  add_replicas(c, &all);
  return all;
}

}  // namespace eaglet::monitor
