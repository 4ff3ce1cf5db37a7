#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "monitor/judges.h"
#include "monitor/series_stats.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

std::string place_of(const MetricSample& sample) {
  return sample.step >= 0 ? fmt::format("step {}", sample.step) : fmt::format("record {}", sample.record);
}

void add_not_finite(const Case& c, Judgements* all) {
  const auto& bad = c.series.log.first_bad;
  if (!bad) return;
  Judgement j = learning_judgement("finite", Level::kCrit,
                                   fmt::format("{} is {} in record {}", bad->metric,
                                               std::isnan(bad->value) ? "NaN" : "infinite", bad->record));
  if (bad->step >= 0) j.reason += fmt::format(" (step {})", bad->step);
  const auto before = [&](const char* name, const char* word) {
    const MetricSample* found = nullptr;
    for (const MetricSample& sample : c.series.log.series(name))
      if ((bad->step < 0 ? sample.record < bad->record : sample.step < bad->step) &&
          std::isfinite(sample.value))
        found = &sample;
    if (found != nullptr) j.reason += fmt::format(", {} {:.4g} before", word, found->value);
  };
  before("lr", "lr");
  before("grad_norm", "grad norm");
  j.advice = bad->step == 0 || bad->record <= 1
                 ? "not finite from the start: weights were never loaded"
                 : "resume from a checkpoint before it with a lower lr; look at that batch";
  all->push_back(j);
}

void add_zero(const Case& c, Judgements* all) {
  const auto& loss = c.series.log.series(c.series.log.first_loss_name());
  if (loss.size() < 3) return;
  bool zero = true;
  for (std::size_t i = loss.size() - 3; i < loss.size(); ++i) zero = zero && loss[i].value == 0;
  if (!zero) return;
  Judgement j = learning_judgement("zero", Level::kCrit, "loss is exactly 0 in the last three records");
  j.advice =
      "the mask selects 0 tokens, or every sample failed to load: check chat template and response markers";
  all->push_back(j);
}

bool warm_started(const Case& c) {
  const auto from = c.config.text("from");
  if (from && !from->empty() && *from != "\"\"" && *from != "false") return true;
  return c.series.log.tensors_loaded.value_or(0) > 0;
}

/// The first loss against ln(V): what a uniform guess costs.
void add_first_loss(const Case& c, Judgements* all) {
  const double vocab = c.config.number("draft_vocab_size").value_or(0);
  const std::string name = c.series.log.first_loss_name();
  const auto& loss = c.series.log.series(name);
  if (vocab < 2 || name != "loss_0" || loss.empty() || loss.front().step > 5 || c.series.log.resumed) return;
  const double uniform = std::log(vocab), first = loss.front().value, ratio = first / uniform;
  Judgement j =
      learning_judgement("first_loss", Level::kOk,
                         fmt::format("first loss_0 {:.2f}, ln({:.0f}) = {:.2f}", first, vocab, uniform));
  j.value = ratio;
  j.unit = "of ln(V)";
  if (warm_started(c)) {
    j.threshold = fmt::format("warm: below {} ln(V)", c.thresholds.warm_loss_max);
    if (ratio > c.thresholds.first_loss_lo) {
      j.level = Level::kCrit;
      j.reason =
          fmt::format("warm start did not take: first loss_0 {:.2f} is a uniform guess (ln({:.0f}) = {:.2f})",
                      first, vocab, uniform);
      j.advice = "compare tensor names and shapes of the draft it started from";
    } else if (ratio > c.thresholds.warm_loss_max) {
      j.level = Level::kWarn;
      j.advice = "high for a warm start: was all of it loaded?";
    }
  } else {
    // A head and norm from the target start above ln(V); such a run must have fallen below it by step 20.
    j.threshold = fmt::format("fresh: {}-{} ln(V), or below ln(V) by step 20", c.thresholds.first_loss_lo,
                              c.thresholds.first_loss_hi);
    const MetricSample* at20 = nullptr;
    for (const MetricSample& sample : loss)
      if (sample.step >= 20 && at20 == nullptr) at20 = &sample;
    if (ratio > c.thresholds.first_loss_hi && at20 != nullptr && at20->value > uniform) {
      j.level = Level::kWarn;
      j.reason = fmt::format("loss_0 {:.2f} at step {}, still above a uniform guess ({:.2f})", at20->value,
                             at20->step, uniform);
      j.advice = "check the target's head and norm, and the vocabulary map";
    }
  }
  all->push_back(j);
}

void add_trend(const Case& c, Judgements* all) {
  const std::string name = c.series.log.first_loss_name();
  if (name.empty()) return;
  const auto& loss = c.series.log.series(name);
  if (loss.empty()) return;
  const Ends ends = quarter_medians(loss);
  Judgement j =
      learning_judgement("trend", Level::kOk,
                         fmt::format("{} {:.4g} ({}) -> {:.4g} ({})", name, loss.front().value,
                                     place_of(loss.front()), loss.back().value, place_of(loss.back())));
  j.value = loss.back().value;
  j.threshold =
      fmt::format("warn: no fall by {:.0f} steps; crit: {}x its least, and {} above it, for {:.0f} records",
                  c.thresholds.trend_steps, c.thresholds.diverge_factor, c.thresholds.diverge_rise,
                  c.thresholds.diverge_points);
  const double steps = static_cast<double>(loss.back().step - loss.front().step);
  if (static_cast<double>(ends.points) < c.thresholds.trend_points) {
    j.level = Level::kUnknown;
    j.reason +=
        fmt::format(", too early to judge ({} of {:.0f} points)", ends.points, c.thresholds.trend_points);
  } else {
    const auto window = static_cast<std::size_t>(c.thresholds.diverge_points);
    double least = kNotKnown, recent = kNotKnown;
    const std::vector<double> values = values_of(loss);
    for (std::size_t i = 0; i + window <= values.size(); i += std::max<std::size_t>(1, window / 5)) {
      const double level =
          median(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(i),
                                     values.begin() + static_cast<std::ptrdiff_t>(i + window)));
      least = std::isnan(least) ? level : std::min(least, level);
      recent = level;
    }
    if (recent > c.thresholds.diverge_factor * least && recent > least + c.thresholds.diverge_rise) {
      j.level = Level::kCrit;
      j.reason =
          fmt::format("diverges: {} {:.4g}, {:.1f}x its least {:.4g}", name, recent, recent / least, least);
      j.advice = "lower lr; check mask and shift; resume from the checkpoint with the least loss";
    } else if (ends.last >= ends.first && steps >= c.thresholds.trend_steps) {
      j.level = Level::kWarn;
      j.reason += fmt::format(", no fall in {:.0f} steps", steps);
      j.advice = "is lr 0? check mask, shift and what is frozen";
    }
  }
  all->push_back(j);
}

void add_spikes(const Case& c, Judgements* all) {
  const auto& loss = c.series.log.series(c.series.log.first_loss_name());
  const auto window = static_cast<std::size_t>(c.thresholds.spike_window);
  if (loss.size() < window + 20) return;
  const std::size_t spikes = count_spikes(loss, c.thresholds.spike_z, window);
  const double per_hundred = 100.0 * static_cast<double>(spikes) / static_cast<double>(loss.size() - window);
  if (per_hundred <= 1) return;
  Judgement j = learning_judgement(
      "spikes", Level::kWarn, fmt::format("{} loss spikes, {:.1f} per 100 records", spikes, per_hundred));
  j.value = per_hundred;
  j.threshold = "warn > 1 per 100";
  j.advice = "clip harder, or look at these samples";
  all->push_back(j);
}

/// full_acc_k counts what is right at all depths up to k: it can only fall with depth.
void add_accuracy_order(const Case& c, Judgements* all) {
  for (int k = 1; k < 64; ++k) {
    const auto &above = c.series.log.series("full_acc_" + std::to_string(k - 1)),
               &here = c.series.log.series("full_acc_" + std::to_string(k));
    if (here.size() < 100 || above.size() < 100) return;
    const double before = last_median(above, 50), level = last_median(here, 50);
    if (!(level > before)) continue;
    Judgement j = learning_judgement(
        "depth_order", Level::kWarn,
        fmt::format("full_acc_{} ({:.3f}) is above full_acc_{} ({:.3f})", k, level, k - 1, before));
    j.advice = "accuracy cannot rise with depth: check the shift and the mask of the drafting steps";
    return all->push_back(std::move(j));
  }
}

/// Later drafting steps see the draft's own state and are harder: loss must rise with depth.
void add_depth_order(const Case& c, Judgements* all) {
  const auto names = c.series.log.loss_names();
  if (names.size() < 2 || c.series.log.series(names[0]).size() < 100) return;
  double before = kNotKnown;
  for (const std::string& name : names) {
    const double level = last_median(c.series.log.series(name), 50);
    if (!(level <= before) || std::isnan(before)) {
      before = level;
      continue;
    }
    Judgement j = learning_judgement(
        "depth_order", Level::kWarn,
        fmt::format("{} ({:.3f}) is not above the depth before it ({:.3f})", name, level, before));
    j.advice = "the steps are not chained: check the shift and the mask of the drafting steps";
    all->push_back(j);
    return;
  }
}

void add_accuracy(const Case& c, Judgements* all) {
  for (const char* name : {"full_acc_0", "acc_0", "acc"}) {
    const auto& acc = c.series.log.series(name);
    if (acc.empty()) continue;
    Judgement j =
        learning_judgement("accuracy", Level::kOk, fmt::format("{} {:.3g}", name, acc.back().value));
    j.value = acc.back().value;
    const double vocab = c.config.number("draft_vocab_size").value_or(0);
    if (acc.back().step >= 20 && vocab > 0 && last_median(acc, 10) < 10 / vocab) {
      j.level = Level::kWarn;
      j.reason += fmt::format(" at step {}: no better than chance", acc.back().step);
      j.advice = "check the vocabulary map and the shift between states and tokens";
    }
    if (j.level == Level::kOk && !warm_started(c) && !c.series.log.resumed &&
        static_cast<double>(acc.back().step) >= c.thresholds.accuracy_steps &&
        last_median(acc, 20) < c.thresholds.accuracy_min) {
      j.level = Level::kWarn;
      j.reason += fmt::format(" at step {}, below {}", acc.back().step, c.thresholds.accuracy_min);
      j.advice = "accuracy moves before the loss looks good: check the shift, the mask, and lr";
    }
    j.threshold = fmt::format("above 10 / V by step 20, {} by step {:.0f}", c.thresholds.accuracy_min,
                              c.thresholds.accuracy_steps);
    all->push_back(j);
    return;
  }
}

/// 1 + sum of running products; SpecForge prints accuracy per step, so its product is an estimate.
double acceptance_now(const LogFacts& log, bool* estimate) {
  const auto& printed = log.series("acceptance_length");
  if (!printed.empty()) return last_median(printed, 10);
  double length = 1, product = 1;
  bool any = false;
  for (int k = 0; k < 64; ++k) {
    const auto& full = log.series("full_acc_" + std::to_string(k));
    const auto& single = log.series("acc_" + std::to_string(k));
    if (full.empty() && single.empty()) break;
    any = true;
    if (!full.empty()) {
      length += last_median(full, 10);
    } else {
      product *= last_median(single, 10);
      length += product;
      *estimate = true;
    }
  }
  return any ? length : kNotKnown;
}

void add_acceptance(const Case& c, Judgements* all) {
  bool estimate = false;
  const double now = acceptance_now(c.series.log, &estimate);
  if (std::isnan(now)) return;
  Judgement j =
      learning_judgement("acceptance", Level::kOk,
                         fmt::format("acceptance length {:.2f}{}", now, estimate ? " (estimate)" : ""));
  j.value = now;
  j.unit = "tokens per pass";
  j.threshold = fmt::format("warn: falls > {:.0f} % over two evaluations while loss falls",
                            100 * c.thresholds.tau_drop);
  // Experience of others: 1.9 with 50,000 samples in five epochs, what is published with ten times as many.
  const double samples = c.config.number("train_samples").value_or(0);
  if (now < 2 && samples > 0 && samples < 60000)
    j.reason += fmt::format(", to be expected of {:.0f} samples", samples);
  const auto& held_out = c.series.log.series("val_acceptance_length");
  const auto& loss = c.series.log.series(c.series.log.first_loss_name());
  if (held_out.size() >= 3) {
    const double best = std::max_element(held_out.begin(), held_out.end(), [](const auto& a, const auto& b) {
                          return a.value < b.value;
                        })->value;
    const double last = held_out.back().value, before = held_out[held_out.size() - 2].value;
    const Ends ends = quarter_medians(loss);
    if (last < (1 - c.thresholds.tau_drop) * best && before < best && ends.last < ends.first) {
      j.level = Level::kWarn;
      j.reason =
          fmt::format("held-out acceptance length fell from {:.3f} to {:.3f} while loss falls", best, last);
      j.advice = "keep the checkpoint with the best acceptance length, not the last";
    }
  }
  all->push_back(j);
}

/// "GPU 2's clock is 18 % below its highest", when it is by a tenth and more.
std::string lowered_clocks(const Case& c) {
  const auto& devices = c.series.views.back().devices;
  double least = 0.9;
  std::string text;
  if (devices)
    for (const DeviceView& device : *devices)
      if (const double share = device.clock_mhz / device.max_clock_mhz; share < least) {
        least = share;
        text = fmt::format("GPU {}'s clock is {:.0f} % below its highest", device.index, 100 * (1 - share));
      }
  return text;
}

/// Medians of ten records, so that one slow step is none.
double best_level(const std::vector<double>& values) {
  double best = kNotKnown;
  for (std::size_t i = 0; i + 10 <= values.size(); i += 5) {
    const double level = median(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(i),
                                                    values.begin() + static_cast<std::ptrdiff_t>(i + 10)));
    best = std::isnan(best) ? level : std::max(best, level);
  }
  return best;
}

/// Tokens per second; of a trainer that prints only how long a step takes, steps per second.
void add_speed(const Case& c, Judgements* all) {
  std::vector<MetricSample> speed = c.series.log.series("tokens_per_second");
  const bool tokens = !speed.empty();
  if (!tokens)
    for (MetricSample sample : c.series.log.series("step_seconds")) {
      sample.value = 1 / sample.value;  // not finite of 0: left out
      speed.push_back(sample);
    }
  if (speed.empty()) return;
  const char* unit = tokens ? "tokens/s" : "steps/s";
  const double now = last_median(speed, 10), best = best_level(values_of(speed));
  if (std::isnan(now)) return;
  const bool slow = now < (1 - c.thresholds.speed_drop) * best;
  const auto text = [tokens](double value) {
    return tokens ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  };
  Judgement j = learning_judgement("speed", slow ? Level::kWarn : Level::kOk, text(now) + " " + unit);
  j.value = now;
  j.unit = unit;
  j.threshold = fmt::format("warn: {:.0f} % below its best", 100 * c.thresholds.speed_drop);
  if (slow) {
    j.reason += fmt::format(", {:.0f} % below its best of {}", 100 * (1 - now / best), text(best));
    j.advice = "clocks (throttling), memory fragmentation, a neighbour, or data from a slower disk";
    if (const std::string clocks = lowered_clocks(c); !clocks.empty())
      j.advice = clocks + ": see throttle, or " + j.advice;
  }
  all->push_back(j);
}

void add_data_wait(const Case& c, Judgements* all) {
  double share = kNotKnown;
  const auto& printed = c.series.log.series("data_wait_share");
  const auto& wait = c.series.log.series("data_wait_seconds");
  const auto& step = c.series.log.series("step_seconds");
  if (!printed.empty())
    share = last_median(printed, 20);
  else if (!wait.empty() && !step.empty())
    share = last_median(wait, 20) / last_median(step, 20);
  if (std::isnan(share)) return;
  const bool bad = share > c.thresholds.fetch_warn;
  Judgement j = learning_judgement("data_wait", bad ? Level::kWarn : Level::kOk,
                                   fmt::format("waits for data {:.0f} % of the time", 100 * share));
  j.value = share;
  j.unit = "share";
  j.threshold = fmt::format("warn > {}, bad > {}", c.thresholds.fetch_warn, c.thresholds.fetch_crit);
  if (bad)
    j.advice = share > c.thresholds.fetch_crit ? "starved: more workers, a local disk, a larger prefetch"
                                               : "more workers or a larger prefetch";
  if (const DataFrom& from = c.series.data_from; bad && !from.filesystem.empty())
    j.advice += fmt::format("; it reads {} over {}", from.folder, from.filesystem);
  all->push_back(j);
}

void add_grad_norm(const Case& c, Judgements* all) {
  const auto& norm = c.series.log.series("grad_norm");
  if (norm.size() < 20) return;
  const double level = median(values_of(norm)), last = last_median(norm, 3);
  if (!(last > 10 * level)) return;
  Judgement j =
      learning_judgement("grad_norm", Level::kWarn,
                         fmt::format("gradient norm {:.3g}, ten times its median {:.3g}", last, level));
  j.advice = "lower lr or clip; look at the newest batches";
  all->push_back(j);
}

void add_validation_gap(const Case& c, Judgements* all) {
  const auto& val = c.series.log.series("val_loss");
  if (val.size() < 3) return;
  const auto n = val.size();
  const Ends train = quarter_medians(c.series.log.series(c.series.log.first_loss_name()));
  if (!(val[n - 1].value > val[n - 2].value && val[n - 2].value > val[n - 3].value &&
        train.last < train.first))
    return;
  Judgement j =
      learning_judgement("overfit", Level::kWarn,
                         fmt::format("held-out loss rises ({:.4g} -> {:.4g}) while training loss falls",
                                     val[n - 3].value, val[n - 1].value));
  j.advice = "fewer epochs or more data; keep the best checkpoint";
  all->push_back(j);
}

}  // namespace

Judgements judge_learning(const Case& c) {
  Judgements all;
  if (!c.series.log_known) return {learning_judgement("learning", Level::kUnknown, "no log to judge by")};
  add_not_finite(c, &all);
  add_zero(c, &all);
  add_first_loss(c, &all);
  add_trend(c, &all);
  add_spikes(c, &all);
  add_depth_order(c, &all);
  add_accuracy_order(c, &all);
  add_accuracy(c, &all);
  add_acceptance(c, &all);
  add_speed(c, &all);
  add_data_wait(c, &all);
  add_grad_norm(c, &all);
  add_validation_gap(c, &all);
  if (all.empty()) all.push_back(learning_judgement("learning", Level::kUnknown, "no metric in the log yet"));
  return all;
}

}  // namespace eaglet::monitor
