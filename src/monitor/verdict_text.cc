#include "monitor/verdict_text.h"

#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"

namespace eaglet::monitor {
namespace {

std::string facts_line(const Verdict& v) {
  std::string text = "run " + v.name;
  if (!v.activity.ranks.empty()) {
    text += fmt::format("  pid {}", v.activity.ranks.front().pid);
    const std::size_t ranks = v.activity.ranks.size() - 1, workers = v.activity.roles.workers.size();
    const auto more = [](std::size_t count, const char* name) {
      return fmt::format("+{} {}{}", count, name, count == 1 ? "" : "s");
    };
    if (ranks > 0 && workers > 0)
      text += " (" + more(ranks, "rank") + ", " + more(workers, "worker") + ")";
    else if (ranks + workers > 0)
      text += " (" + (ranks > 0 ? more(ranks, "rank") : more(workers, "worker")) + ")";
  }
  if (!std::isnan(v.up_seconds)) text += "  up " + human_duration(v.up_seconds);
  text += std::string("  phase ") + phase_word(v.state.phase);
  if (v.step >= 0)
    text += v.total_steps > 0 ? fmt::format("  step {}/{}", v.step, v.total_steps)
                              : fmt::format("  step {}", v.step);
  if (!std::isnan(v.eta_seconds)) text += "  eta " + human_duration(v.eta_seconds);
  if (!std::isnan(v.state.silent_seconds))
    text += fmt::format("  last progress {} ago", human_duration(v.state.silent_seconds));
  return text;
}

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json judgement_json(const Judgement& j) {
  return Json{{"name", j.name},
              {"layer", layer_word(j.layer)},
              {"level", level_word(j.level)},
              {"value", number_or_null(j.value)},
              {"unit", j.unit},
              {"window_seconds", j.window_seconds},
              {"threshold", j.threshold},
              {"reason", j.reason},
              {"advice", j.advice},
              {"next", j.next}};
}

/// Newest values by metric, and the series of the losses (at most the last 200).
Json metrics_json(const LogFacts& log) {
  Json metrics = Json::object();
  for (const auto& [name, samples] : log.metrics) {
    if (samples.empty()) continue;
    Json entry = {{"first", number_or_null(samples.front().value)},
                  {"last", number_or_null(samples.back().value)},
                  {"first_step", samples.front().step},
                  {"last_step", samples.back().step},
                  {"last_not_finite", !std::isfinite(samples.back().value)}};
    Json steps = Json::array(), values = Json::array();
    const std::size_t from = samples.size() > 200 ? samples.size() - 200 : 0;
    for (std::size_t i = from; i < samples.size(); ++i) {
      steps.push_back(samples[i].step);
      values.push_back(number_or_null(samples[i].value));
    }
    entry["steps"] = std::move(steps);
    entry["values"] = std::move(values);
    metrics[name] = std::move(entry);
  }
  return metrics;
}

Json log_json(const Verdict& v) {
  if (!v.log_known) return nullptr;
  const LogFacts& log = v.log;
  Json json = {{"path", v.log_path},           {"bytes", log.bytes},         {"lines", log.lines},
               {"recognised", log.recognised}, {"records", log.records},     {"bar_states", log.bars},
               {"first_step", log.first_step}, {"last_step", log.last_step}, {"total_steps", log.total_steps},
               {"finished", log.finished}};
  json["first_bad"] = nullptr;
  if (log.first_bad)
    json["first_bad"] = {
        {"metric", log.first_bad->metric}, {"record", log.first_bad->record}, {"step", log.first_bad->step}};
  Json errors = Json::array();
  for (const LogError& error : log.errors)
    errors.push_back({{"kind", error.kind}, {"rank", error.rank}, {"text", error.text}});
  json["errors"] = std::move(errors);
  json["metrics"] = metrics_json(log);
  return json;
}

Json devices_json(const Activity& a) {
  Json devices = Json::array();
  for (const DeviceActivity& d : a.devices)
    devices.push_back({{"index", d.index},
                       {"name", d.name},
                       {"busy_pct", number_or_null(d.busy_pct)},
                       {"power_w", number_or_null(d.power_w)},
                       {"limit_w", number_or_null(d.limit_w)},
                       {"power_above_idle_ratio", number_or_null(d.above_idle)},
                       {"own_busy_pct", number_or_null(d.own_busy_pct)},
                       {"foreign_busy_pct", number_or_null(d.foreign_busy_pct)},
                       {"foreign_pid", d.foreign_pid < 0 ? Json(nullptr) : Json(d.foreign_pid)},
                       {"mem_used_bytes", number_or_null(d.used_bytes)},
                       {"mem_total_bytes", number_or_null(d.total_bytes)}});
  return devices;
}

Json ranks_json(const Activity& a) {
  Json ranks = Json::array();
  for (const RankActivity& r : a.ranks)
    ranks.push_back({{"rank", r.rank},
                     {"pid", r.pid},
                     {"state", std::string(1, r.state)},
                     {"cores", number_or_null(r.cores)},
                     {"device", r.device},
                     {"wait_place", r.wait_place}});
  return ranks;
}

Json server_json(const ServerActivity& s) {
  if (!s.known) return nullptr;
  return {{"kind", s.kind},
          {"answers", s.answers},
          {"requests_running", number_or_null(s.running)},
          {"requests_waiting", number_or_null(s.waiting)},
          {"prompt_tokens_per_second", number_or_null(s.prompt_tokens_per_second)},
          {"generated_tokens_per_second", number_or_null(s.generated_tokens_per_second)},
          {"kv_cache_share", number_or_null(s.cache_share)},
          {"tokens_per_pass", number_or_null(s.accepted_length)},
          {"still_seconds", number_or_null(s.still_seconds)}};
}

}  // namespace

Level state_level(RunState state) {
  if (state == RunState::kStalled || state == RunState::kDead) return Level::kCrit;
  if (state == RunState::kLate) return Level::kWarn;
  return state == RunState::kUnknownState ? Level::kUnknown : Level::kOk;
}

std::string verdict_text(const Verdict& v, const Paint& paint, bool all_judgements) {
  const Level shown = state_level(v.state.state) == Level::kOk ? v.level : state_level(v.state.state);
  std::string out = paint(state_word(v.state.state), shown) + "  " + v.headline;
  if (const std::string& first = first_thing_to_do(v); !first.empty()) out += "  ->  " + first;
  out += "\n" + facts_line(v) + "\n";
  for (const Layer layer : kLayers) {
    const Level level = layer_level(v, layer);
    const bool judged = layer_judged(v, layer);
    const std::string word = judged ? level_word(level) : "-";
    out += paint(word, judged ? level : Level::kUnknown) +
           std::string(word.size() < 8 ? 8 - word.size() : 1, ' ');
    out += fmt::format("{:<10} {}{}\n", layer_word(layer), judged ? "" : "(not judged yet) ",
                       layer_text(v, layer));
  }
  if (!v.state.silence.empty()) out += "        " + v.state.silence + "\n";
  const std::vector<Evidence> evidences = deciding_evidence(v);
  if (!evidences.empty()) out += "because\n";
  for (const Evidence& evidence : evidences)
    out += fmt::format("  {} {}\n", evidence.progress ? "+" : "-", evidence.text);
  if (all_judgements) {
    out += "judgements\n";
    for (const Judgement& j : v.judgements)
      out += fmt::format("  {:<8}{:<9} {:<14} {}{}{}\n", level_word(j.level), layer_word(j.layer), j.name,
                         j.reason, j.threshold.empty() ? "" : "  [" + j.threshold + "]",
                         j.advice.empty() ? "" : "  -> " + j.advice);
  }
  if (!v.advice.empty() && v.advice != v.next) out += "do      " + v.advice + "\n";
  if (!v.next.empty()) out += "next    " + v.next + "\n";
  return out;
}

Json verdict_json(const Verdict& v) {
  Json json = {{"schema", 1},
               {"run", v.name},
               {"state", state_word(v.state.state)},
               {"level", level_word(v.level)},
               {"exit_code", verdict_exit_code(v)}};
  json["headline"] = v.headline;
  json["cause"] = v.state.cause;
  json["advice"] = v.advice;
  json["next"] = v.next;
  json["time"] = std::isnan(v.wall) ? Json(nullptr) : Json(rfc3339_utc(v.wall));
  json["epoch_seconds"] = number_or_null(v.wall);
  json["window_seconds"] = v.activity.span_seconds;
  json["views"] = v.activity.views;
  json["phase"] = phase_word(v.state.phase);
  json["step"] = v.step < 0 ? Json(nullptr) : Json(v.step);
  json["total_steps"] = v.total_steps > 0 ? Json(v.total_steps) : Json(nullptr);
  json["eta_seconds"] = number_or_null(v.eta_seconds);
  json["up_seconds"] = number_or_null(v.up_seconds);
  json["silent_seconds"] = number_or_null(v.state.silent_seconds);
  json["allowed_seconds"] = number_or_null(v.state.allowed_seconds);
  json["silence"] = v.state.silence;
  json["suspect"] = nullptr;
  if (v.state.suspect_pid >= 0)
    json["suspect"] = {{"pid", v.state.suspect_pid}, {"rank", v.state.suspect_rank}};
  json["resume_step"] = v.state.resume_step < 0 ? Json(nullptr) : Json(v.state.resume_step);
  json["lost_steps"] = v.state.lost_steps < 0 ? Json(nullptr) : Json(v.state.lost_steps);
  Json orphans = Json::array();
  for (const OrphanSeen& o : v.state.orphans)
    orphans.push_back({{"pid", o.pid},
                       {"device", o.device},
                       {"mem_bytes", number_or_null(o.device_bytes)},
                       {"command", o.command}});
  json["orphans"] = std::move(orphans);
  Json evidence = Json::array();
  for (const Evidence& e : v.state.evidence)
    evidence.push_back({{"kind", e.kind}, {"for", e.progress ? "progress" : "stall"}, {"text", e.text}});
  json["evidence"] = std::move(evidence);
  Json layers = Json::object();
  for (const Layer layer : kLayers)
    layers[layer_word(layer)] = {{"level", level_word(layer_level(v, layer))},
                                 {"judged", layer_judged(v, layer)},
                                 {"text", layer_text(v, layer)}};
  json["layers"] = std::move(layers);
  Json judgements = Json::array();
  for (const Judgement& j : v.judgements) judgements.push_back(judgement_json(j));
  json["judgements"] = std::move(judgements);
  json["ranks"] = ranks_json(v.activity);
  json["devices"] = devices_json(v.activity);
  json["server"] = server_json(v.activity.server);
  json["log"] = log_json(v);
  return json;
}

std::string verdict_nagios(const Verdict& v) {
  constexpr const char* words[] = {"OK", "WARN", "CRIT", "UNKNOWN"};
  std::string headline = v.headline;
  for (char& c : headline)
    if (c == '|' || c == '\n') c = '/';
  std::string text = fmt::format("EAGLET {} - {} {}: {}", words[verdict_exit_code(v)], v.name,
                                 state_word(v.state.state), headline);
  std::string data;
  if (!std::isnan(v.activity.power_w) && !v.activity.devices.empty())
    data += fmt::format(" power={:.0f}W;;;0;{:.0f}", v.activity.power_w, v.activity.devices.front().limit_w);
  if (!std::isnan(v.activity.tree_cores)) data += fmt::format(" cores={:.2f}", v.activity.tree_cores);
  if (v.step >= 0) data += fmt::format(" step={}", v.step);
  const auto& loss = v.log.series(v.log.first_loss_name());
  if (!loss.empty() && std::isfinite(loss.back().value))
    data += fmt::format(" loss={:.4g}", loss.back().value);
  if (!data.empty()) text += " |" + data;
  return text + "\n";
}

}  // namespace eaglet::monitor
