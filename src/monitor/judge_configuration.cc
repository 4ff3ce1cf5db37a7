#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/clock.h"
#include "monitor/draft_cost.h"
#include "monitor/judges.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

/// 35446 -> "35,446".
std::string grouped(double value) {
  std::string text = fmt::format("{:.0f}", value);
  for (std::size_t at = text.size(); at > 3 && at < 20;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string round_number(double value) {
  const double unit = value >= 1000 ? 100 : value >= 100 ? 10 : 1;
  return grouped(std::round(value / unit) * unit);
}

/// eaglet, and speculators (train_config.json before 0.9, run.yaml since).
bool writes_configuration(const Case& c) {
  const RunView& last = c.series.views.back();
  for (const std::size_t i : c.activity.roles.ranks) {
    const std::string& command = (*last.processes)[i].command;
    const auto parts = words(command);
    const bool own = !parts.empty() && (parts[0] == "eaglet" || parts[0].ends_with("/eaglet")) &&
                     std::find(parts.begin(), parts.end(), "train") != parts.end();
    if (own || contains(command, "speculators")) return true;
  }
  return false;
}

void add_artifact(const Case& c, Judgements* all) {
  if (!c.series.live) return;
  if (!c.series.config_error.empty()) {
    all->push_back(configuration_judgement("artifact", Level::kWarn, c.series.config_error));
    all->back().advice = "cut off while it was written, or edited by hand: nothing of it is judged";
    return;
  }
  if (!c.series.config) {
    if (!(c.activity.age_seconds > c.thresholds.artifact_seconds) || c.series.output_dir.empty()) return;
    Judgement j = configuration_judgement("artifact", Level::kUnknown,
                                          "no train_config.json or run.yaml in " + c.series.output_dir);
    j.value = c.activity.age_seconds;
    j.unit = "s";
    j.threshold = fmt::format("warn: not there after {} of a trainer that writes one",
                              human_duration(c.thresholds.artifact_seconds));
    // Most trainers write none: its absence says nothing about them.
    if (writes_configuration(c) && c.state.phase != Phase::kLoad) {
      j.level = Level::kWarn;
      j.reason += fmt::format(" after {}, and its trainer writes one when it starts",
                              human_duration(c.activity.age_seconds));
      j.advice =
          "another run's directory, or one it may not write into: compare the output directory with the "
          "command";
      j.next = "ls -l " + c.series.output_dir;
    }
    all->push_back(std::move(j));
    return;
  }
  if (c.series.config_mtime + 5 < c.series.run_began && !c.series.log.resumed) {
    all->push_back(configuration_judgement("artifact", Level::kWarn,
                                           "the configuration file is older than the process"));
    all->back().advice = "this may be another run's directory: " + c.series.config_path;
  }
}

void add_differences(const Case& c, Judgements* all) {
  for (const RunConfig::Difference& d : c.config.differences()) {
    Judgement j = configuration_judgement(
        "declared", Level::kWarn,
        fmt::format("asked {} {}, the run uses {} ({})", d.key, d.asked, d.effective, d.source));
    j.advice = "a later setting wins: find it, or restart with the one you meant";
    all->push_back(j);
  }
}

/// Tokens of the training split. A file count times a share (95 % of the samples) is scaled with it.
double training_tokens(const RunConfig& config, double batches, double samples) {
  double tokens = config.number("real_tokens").value_or(0);
  if (tokens <= 0) {
    const double layers = config.number("num_captured").value_or(config.number("num_aux").value_or(0) + 1);
    const double per_token = layers * config.number("hidden_size").value_or(0) * 2;
    tokens = per_token > 0 ? config.number("data_bytes").value_or(0) / per_token : 0;
  }
  const double share = samples > 0 ? batches / samples : 1;
  return share > 0.8 && share < 1 ? tokens * share : tokens;
}

/// Batches times max_seq_len against real tokens: the strongest check of a configuration there is.
void add_packing(const Case& c, Judgements* all) {
  const double batches = c.config.number("train_batches").value_or(0);
  const double seq = c.config.number("max_seq_len").value_or(0);
  const double samples = c.config.number("train_samples").value_or(0);
  const double tokens = training_tokens(c.config, batches, samples);
  const double fill = packing_fill(c);
  const double share = samples > 0 ? batches / samples : 0;
  const bool one_each = share > 0.8 && share <= 1.0001;
  if (std::isnan(fill) && !one_each) return;
  Judgement j = configuration_judgement("packing", Level::kOk, "");
  j.value = fill;
  j.unit = "share of real tokens";
  j.threshold = fmt::format("warn < {}", c.thresholds.fill_warn);
  if (one_each && !(fill >= c.thresholds.fill_warn)) {
    j.level = Level::kWarn;
    j.reason = fmt::format("{} batches = {:.0f} % of {} samples: not packed", grouped(batches), 100 * share,
                           grouped(samples));
    if (!std::isnan(fill))
      j.reason +=
          fmt::format(" (fill {:.0f} %, {:.0f} % of the work is padding)", 100 * fill, 100 * (1 - fill));
    j.advice = "restart with packing";
    if (!std::isnan(fill) && tokens > 0)
      j.advice += fmt::format(": about {} batches, {:.1f}x fewer steps", round_number(tokens / seq),
                              batches * seq / tokens);
  } else if (fill < c.thresholds.fill_warn) {
    j.level = Level::kWarn;
    j.reason = fmt::format("fill {:.0f} %: {:.0f} % of the work is padding", 100 * fill, 100 * (1 - fill));
    j.advice = "pack documents into a batch, or lower max_seq_len";
  } else {
    j.reason = fmt::format("fill {:.0f} %", 100 * fill);
  }
  all->push_back(j);
}

void add_steps(const Case& c, Judgements* all) {
  const double total = c.config.number("total_steps").value_or(0);
  const double epochs = c.config.number("epochs").value_or(0),
               batches = c.config.number("train_batches").value_or(0);
  if (total > 0 && epochs > 0 && batches > 0) {
    const double ratio = epochs * batches / total;
    const double whole = std::max(1.0, std::round(ratio));
    const bool fits = std::abs(ratio / whole - 1) < 0.02 && ratio > 0.9;
    Judgement j = configuration_judgement(
        "steps", Level::kOk,
        fmt::format("{} steps = {:.0f} epochs x {} batches", grouped(total), epochs, grouped(batches)));
    if (fits && whole > 1) j.reason += fmt::format(" / {:.0f} (ranks or accumulation)", whole);
    if (!fits && c.config.number("max_steps").value_or(0) > 0) {
      j.reason = fmt::format("{} steps, as max_steps says; {:.0f} epochs x {} batches are {}", grouped(total),
                             epochs, grouped(batches), grouped(epochs * batches));
    } else if (!fits) {
      j.level = Level::kWarn;
      j.reason = fmt::format("{} steps, but {:.0f} epochs x {} batches are {}", grouped(total), epochs,
                             grouped(batches), grouped(epochs * batches));
      j.advice = ratio > 1 ? fmt::format("the schedule ends after {:.0f} % of the data", 100 / ratio)
                           : "epochs are counted twice somewhere";
    }
    all->push_back(j);
  }
  const double horizon = c.config.number("scheduler_total_steps").value_or(0);
  if (horizon > 0 && total > 0 && horizon < 0.98 * total) {
    Judgement j =
        configuration_judgement("lr_horizon", Level::kWarn,
                                fmt::format("LR reaches its end at {:.0f} % of the run ({} of {} steps)",
                                            100 * horizon / total, grouped(horizon), grouped(total)));
    j.advice = "set scheduler_total_steps to the run's steps";
    all->push_back(j);
  }
}

double scheduled_lr(const std::string& kind, double base, double step, double warmup, double total) {
  if (step < warmup) return base * step / warmup;
  const double progress = std::min(1.0, (step - warmup) / std::max(1.0, total - warmup));
  if (kind == "linear") return base * (1 - progress);
  if (kind == "cosine") return base * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return base;
}

void add_lr(const Case& c, Judgements* all) {
  const auto& printed = c.series.log.series("lr");
  if (printed.empty() || printed.back().step < 0) return;
  const double lr = printed.back().value, step = static_cast<double>(printed.back().step);
  const double total = std::max(c.config.number("scheduler_total_steps").value_or(0),
                                c.config.number("total_steps").value_or(0));
  if (lr == 0 && total > 0 && step > 0.02 * total && step < 0.98 * total) {
    Judgement j = configuration_judgement("lr", Level::kWarn, fmt::format("lr is 0 at step {:.0f}", step));
    j.advice = "warm-up was never left, or the schedule's end has passed";
    all->push_back(j);
    return;
  }
  const auto base = c.config.number("lr");
  std::string kind = lower(c.config.text("scheduler_type").value_or(""));
  if (!base || total <= 0 || (kind != "linear" && kind != "cosine" && kind != "none")) return;
  if (c.config.number("min_lr_ratio").value_or(0) != 0 ||
      c.config.number("num_cosine_cycles").value_or(0.5) != 0.5)
    return;
  double warmup = c.config.number("warmup_steps").value_or(-1);
  if (warmup < 0)
    warmup = kind == "none" ? 0 : std::floor(c.config.number("warmup_ratio").value_or(0.01) * total);
  const double want = scheduled_lr(kind, *base, step, warmup, total);
  // Three printed digits are good to half a percent; one step to either side is another convention, not a
  // fault.
  const double near =
      std::max({std::abs(want - scheduled_lr(kind, *base, step + 1, warmup, total)),
                std::abs(want - scheduled_lr(kind, *base, std::max(0.0, step - 1), warmup, total)),
                c.thresholds.lr_tolerance * want});
  const bool fits = std::abs(lr - want) <= near + 1e-12;
  Judgement j = configuration_judgement("lr", fits ? Level::kOk : Level::kWarn,
                                        fmt::format("lr {:.3g} at step {:.0f}", lr, step));
  if (!fits) {
    j.reason += fmt::format(", the {} schedule says {:.3g}", kind, want);
    j.advice = "compare lr, warm-up and total steps with what was meant";
  }
  j.value = lr;
  j.threshold = fmt::format("within {:.0f} %", 100 * c.thresholds.lr_tolerance);
  all->push_back(j);
}

void add_vocabulary(const Case& c, Judgements* all) {
  const auto covered = c.config.number("covered_share");
  if (!covered || !(*covered > 0)) return;
  const bool low = *covered < c.thresholds.coverage_warn;
  Judgement j = configuration_judgement(
      "coverage", low ? Level::kWarn : Level::kOk,
      fmt::format("draft vocabulary covers {:.1f} % of the target's tokens", 100 * *covered));
  j.value = *covered;
  j.unit = "share";
  j.threshold = fmt::format("warn < {}", c.thresholds.coverage_warn);
  if (low) j.advice = "acceptance is capped by it: a larger draft_vocab_size, or counts from your own data";
  all->push_back(j);
}

void add_warm_start(const Case& c, Judgements* all) {
  const auto skipped = c.series.log.tensors_skipped, loaded = c.series.log.tensors_loaded;
  if (!loaded || !skipped) return;
  const bool none = *loaded == 0;
  Judgement j = configuration_judgement("warm_start", none ? Level::kWarn : Level::kOk,
                                        fmt::format("{} tensors loaded, {} skipped", *loaded, *skipped));
  if (none) j.advice = "nothing was loaded: compare tensor names and shapes";
  all->push_back(j);
}

void add_parameters(const Case& c, Judgements* all) {
  const auto shape = draft_shape(c.config);
  const auto counted = c.config.number("trainable_params"), total = c.config.number("total_params");
  if (!counted) return;
  Judgement j =
      configuration_judgement("parameters", Level::kOk, fmt::format("{:.4f} B trainable", *counted / 1e9));
  if (total) j.reason += fmt::format(" of {:.4f} B", *total / 1e9);
  j.value = *counted;
  if (shape) {
    const double want = trainable_parameters(*shape);
    DraftShape frozen = *shape;
    frozen.head_trained = !shape->head_trained;
    j.threshold = fmt::format("{:.4f} B by the shape, within 1 %", want / 1e9);
    if (std::abs(*counted / want - 1) > 0.01) {
      j.level = Level::kWarn;
      j.reason =
          fmt::format("{:.4f} B expected by the shape, {:.4f} B trainable", want / 1e9, *counted / 1e9);
      if (std::abs(*counted / trainable_parameters(frozen) - 1) < 0.01)
        j.advice = shape->head_trained ? "the draft head is frozen" : "the draft head is trained";
    }
  }
  all->push_back(j);
}

/// Tokens per second times bytes per token, from the store's size: what the disk must give.
void add_bandwidth(const Case& c, Judgements* all) {
  const double layers = c.config.number("num_captured").value_or(c.config.number("num_aux").value_or(0) + 1);
  const double per_token = layers * c.config.number("hidden_size").value_or(0) * 2;
  const auto& speed = c.series.log.series("tokens_per_second");
  const double got = c.activity.read_bytes_per_second;
  if (per_token <= 2 || speed.empty() || !(got > 0)) return;
  const double needed = speed.back().value * per_token;
  if (needed < 50e6) return;
  const auto& waits = c.series.log.series("data_wait_share");
  const double wait = waits.empty() ? 0 : waits.back().value;
  const bool from_memory = got <= 0.5 * needed;
  const bool slow = !from_memory && wait > c.thresholds.fetch_warn;
  Judgement j =
      configuration_judgement("bandwidth", slow ? Level::kWarn : Level::kOk,
                              fmt::format("needs {}/s of states, reads {}/s{}", human_bytes(needed),
                                          human_bytes(got), from_memory ? " (the rest from memory)" : ""));
  if (slow) {
    j.reason += fmt::format(" and waits {:.0f} % of the time: the storage gives no more", 100 * wait);
    j.advice = "states on a local disk, fewer captured layers, or states in fewer bits";
  }
  j.window_seconds = c.activity.span_seconds;
  j.threshold = fmt::format("warn: reads them from the disk and waits > {}", c.thresholds.fetch_warn);
  j.value = needed;
  j.unit = "bytes/s";
  all->push_back(j);
}

}  // namespace

double packing_fill(const Case& c) {
  const double batches = c.config.number("train_batches").value_or(0),
               seq = c.config.number("max_seq_len").value_or(0),
               tokens = training_tokens(c.config, batches, c.config.number("train_samples").value_or(0));
  if (batches > 0 && seq > 0 && tokens > 0) return tokens / (batches * seq);
  if (const auto told = c.config.number("fill_ratio")) return *told;
  const auto& printed = c.series.log.series("fill_ratio");
  return printed.empty() ? kNotKnown : printed.back().value;
}

Judgements judge_configuration(const Case& c) {
  Judgements all;
  add_artifact(c, &all);
  add_differences(c, &all);
  add_packing(c, &all);
  add_steps(c, &all);
  add_lr(c, &all);
  add_vocabulary(c, &all);
  add_warm_start(c, &all);
  add_parameters(c, &all);
  add_bandwidth(c, &all);
  if (all.empty())
    all.push_back(configuration_judgement("configuration", Level::kUnknown, "no configuration found"));
  return all;
}

}  // namespace eaglet::monitor
