// What the run learns from: its vocabulary maps, its data files, who feeds them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "monitor/draft_cost.h"
#include "monitor/judges.h"

namespace eaglet::monitor {
namespace {

/// Length of d2t = true entries of t2d = draft vocabulary, ids ascending.
void add_maps(const Case& c, Judgements* all) {
  const DataSeen& data = c.series.data;
  if (data.draft_ids < 0) return;
  const auto vocab = c.config.number("draft_vocab_size");
  Judgement j = configuration_judgement("vocabulary_maps", Level::kOk,
                                        fmt::format("vocabulary maps of {} ids agree", data.draft_ids));
  j.value = static_cast<double>(data.draft_ids);
  j.unit = "ids";
  j.threshold = "d2t and t2d have draft_vocab_size ids each, ascending, the same ones";
  if (data.draft_ids != data.target_ids)
    j.reason = fmt::format("d2t has {} ids, t2d {}", data.draft_ids, data.target_ids);
  else if (!data.maps_agree)
    j.reason = "d2t and t2d name different ids, or ids out of order";
  else if (vocab && *vocab > 0 && *vocab != static_cast<double>(data.draft_ids))
    j.reason = fmt::format("the maps have {} ids, draft_vocab_size is {:.0f}", data.draft_ids, *vocab);
  else
    return all->push_back(std::move(j));
  j.level = Level::kCrit;
  j.reason += ": " + data.maps_path;
  j.advice = "make the maps again from the data of this run; with wrong ones every accepted token is luck";
  j.next = "eaglet vocab --help";
  all->push_back(std::move(j));
}

/// Layers and width of the data files against the configuration.
void add_layers(const Case& c, Judgements* all) {
  const DataSeen& data = c.series.data;
  if (data.hidden < 0) return;
  const double hidden = c.config.number("hidden_size").value_or(0),
               aux = c.config.number("num_aux").value_or(0);
  Judgement j = configuration_judgement(
      "data_layers", Level::kOk, fmt::format("states of {} layers, {} wide", data.layers, data.hidden));
  j.value = static_cast<double>(data.layers);
  j.unit = "layers";
  j.threshold = "hidden_size wide; the captured layers and the last one; a row for each token id";
  if (data.tokens >= 0 && data.tokens != data.rows) {
    j.level = Level::kCrit;
    j.reason =
        fmt::format("{} rows of states for {} token ids: {}", data.rows, data.tokens, data.states_path);
    j.advice = "states and tokens are not of the same text: take the states again from these ids";
    j.next = "eaglet inspect " + data.states_path + " --verify";
  } else if (hidden > 0 && hidden != static_cast<double>(data.hidden)) {
    j.level = Level::kCrit;
    j.reason = fmt::format("states are {} wide, the model's hidden_size is {:.0f}: {}", data.hidden, hidden,
                           data.states_path);
    j.advice = "these states are of another target model";
  } else if (aux > 0 && static_cast<double>(data.layers) != aux &&
             static_cast<double>(data.layers) != aux + 1) {
    j.level = Level::kWarn;
    j.reason = fmt::format("data has {} layers, the configuration says {:.0f} + last: {}", data.layers, aux,
                           data.states_path);
    j.advice = "compare target_layer_ids with those the states were taken at";
  }
  all->push_back(std::move(j));
}

/// Bytes on disk and tokens that were counted tell of the same data: far apart, one of them is another data
/// set's.
void add_size(const Case& c, Judgements* all) {
  const double told = c.config.number("real_tokens").value_or(0),
               bytes = c.config.number("data_bytes").value_or(0);
  const double layers = c.config.number("num_captured").value_or(c.config.number("num_aux").value_or(0) + 1);
  const double per_token = layers * c.config.number("hidden_size").value_or(0) * 2;
  if (!(told > 0 && bytes > 0 && per_token > 2)) return;
  const double stored = bytes / per_token, apart = std::max(stored / told, told / stored) - 1;
  Judgement j = configuration_judgement(
      "data_size", Level::kOk, fmt::format("{} of states, {:.3g} M tokens", human_bytes(bytes), told / 1e6));
  j.value = apart;
  j.unit = "share apart";
  j.threshold = fmt::format("warn > {}", c.thresholds.data_size_warn);
  if (apart > c.thresholds.data_size_warn) {
    j.level = Level::kWarn;
    j.reason = fmt::format("{} are {:.3g} M tokens of {:.0f} layers in bf16, the configuration says {:.3g} M",
                           human_bytes(bytes), stored / 1e6, layers, told / 1e6);
    j.advice = "states left over from another extraction, or a part of them is missing";
  }
  all->push_back(std::move(j));
}

/// What the run reads, as its open files show: information, and which mount to look at when data comes
/// slowly.
void add_source(const Case& c, Judgements* all) {
  const DataFrom& from = c.series.data_from;
  if (from.folder.empty()) return;
  Judgement j = configuration_judgement(
      "data", Level::kOk,
      fmt::format("reads {} ({} file{} open{})", from.folder, from.files, from.files == 1 ? "" : "s",
                  from.filesystem.empty() ? "" : ", over the network: " + from.filesystem));
  j.value = static_cast<double>(from.files);
  j.unit = "files";
  j.threshold = "none";
  all->push_back(std::move(j));
}

/// "; PID 4711 gone, last seen at ...", of the `missing` workers that were seen last and are none any more;
/// at most three. Workers of earlier epochs are gone too, and were seen before those.
std::string gone_workers(const Case& c, std::size_t missing) {
  constexpr std::size_t kMostNamed = 3;
  std::map<std::pair<std::int64_t, double>, double> last_seen;  // by pid and start; wall clock
  double newest = 0;
  for (const RunView& view : c.series.views) {
    if (!view.processes) continue;
    newest = view.wall;
    for (const std::size_t i : roles_of(view).workers) {
      const ProcessView& worker = (*view.processes)[i];
      last_seen[{worker.pid, worker.start_time}] = view.wall;
    }
  }
  std::vector<std::pair<double, std::int64_t>> gone;
  for (const auto& [who, wall] : last_seen)
    if (wall < newest) gone.emplace_back(wall, who.first);
  std::sort(gone.rbegin(), gone.rend());
  gone.resize(std::min({gone.size(), missing, kMostNamed}));
  std::string text;
  for (const auto& [wall, pid] : gone)
    text += fmt::format("; PID {} gone, last seen at {}", pid, rfc3339_utc(wall));
  return text;
}

/// Loader workers against what was asked: fewer for a whole window, once it trains, means that some died.
void add_workers(const Case& c, Judgements* all) {
  const double asked = c.config.number("num_workers").value_or(0);
  const auto ranks = static_cast<double>(c.activity.ranks.size());
  if (c.state.phase != Phase::kTrain || c.activity.span_seconds < c.thresholds.window_seconds - 5) return;
  std::size_t now = c.activity.roles.workers.size(), most = 0, most_in_window = 0;
  for (std::size_t v = 0; v < c.series.views.size(); ++v) {
    if (!c.series.views[v].processes) continue;
    const std::size_t seen = roles_of(c.series.views[v]).workers.size();
    most = std::max(most, seen);
    if (v >= c.activity.first_view) most_in_window = std::max(most_in_window, seen);
  }
  // None at all is how threads, or workers between two epochs, look.
  const auto expected = std::max(static_cast<double>(most), asked * ranks);
  if (now == 0 || asked <= 0 || ranks == 0) return;
  Judgement j = configuration_judgement("workers", Level::kOk, fmt::format("{} loader workers", now));
  j.layer = Layer::kProcess;
  j.value = static_cast<double>(now);
  j.unit = "workers";
  j.window_seconds = c.activity.span_seconds;
  j.threshold = fmt::format("{:.0f} = {:.0f} ranks x {:.0f}", asked * ranks, ranks, asked);
  if (static_cast<double>(most_in_window) < expected && static_cast<double>(now) < expected) {
    j.level = Level::kWarn;
    j.reason = fmt::format("{} of {:.0f} loader workers for {}: some died", now, expected,
                           human_duration(c.activity.span_seconds)) +
               gone_workers(c, static_cast<std::size_t>(expected) - now);
    j.advice = "memory or /dev/shm ran out, or one met a file it cannot read: its last words are in the log";
  }
  all->push_back(std::move(j));
}

/// Logits of all drafting steps are the largest thing in memory after the weights.
void add_memory_estimate(const Case& c, Judgements* all) {
  const auto shape = draft_shape(c.config);
  const double seq = c.config.number("max_seq_len").value_or(0);
  if (!shape || seq <= 0 || shape->ttt_steps < 1) return;
  const double logits = shape->ttt_steps * seq * shape->draft_vocab * 4, fixed = fixed_training_bytes(*shape);
  Judgement j = configuration_judgement(
      "memory_estimate", Level::kOk,
      fmt::format("weights and optimizer {}, logits of {:.0f} x {:.0f} x {:.0f} in fp32 {}",
                  human_bytes(fixed), shape->ttt_steps, seq, shape->draft_vocab, human_bytes(logits)));
  j.value = fixed + logits;
  j.unit = "bytes";
  double least = kNotKnown;
  for (const DeviceActivity& device : c.activity.devices)
    if (device.total_bytes > 0)
      least = std::isnan(least) ? device.total_bytes : std::min(least, device.total_bytes);
  j.threshold = "warn: more than a GPU has";
  if (j.value > least) {
    j.level = Level::kWarn;
    j.reason += fmt::format(", a GPU has {}", human_bytes(least));
    j.advice = "chunk the loss over the vocabulary, or lower max_seq_len";
  }
  all->push_back(std::move(j));
}

/// In what numbers it computes: information, so that a comparison of two runs can see it.
void add_precision(const Case& c, Judgements* all) {
  std::string told;
  for (const char* key :
       {"compute_type", "mixed_precision", "torch_dtype", "dtype", "precision", "bf16", "fp16",
        "master_weights", "param_dtype", "adam_dtype", "optimizer_dtype", "optim_bits"})
    if (const auto text = c.config.text(key); text && !text->empty() && text->size() < 40)
      told += fmt::format("{}{} {}", told.empty() ? "" : ", ", key, *text);
  if (told.empty()) return;
  Judgement j = configuration_judgement("precision", Level::kOk, told);
  j.threshold = "none";
  all->push_back(std::move(j));
}

}  // namespace

Judgements judge_data(const Case& c) {
  Judgements all;
  add_maps(c, &all);
  add_layers(c, &all);
  add_size(c, &all);
  add_source(c, &all);
  add_workers(c, &all);
  add_memory_estimate(c, &all);
  add_precision(c, &all);
  return all;
}

}  // namespace eaglet::monitor
