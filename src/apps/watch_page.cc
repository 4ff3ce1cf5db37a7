#include "apps/watch_page.h"

#include <fmt/format.h>

#include <cmath>

#include "apps/device_time_text.h"
#include "apps/source_hash.h"
#include "apps/svg_chart.h"
#include "apps/watch_page_script.h"
#include "base/clock.h"
#include "monitor/metric_names.h"
#include "monitor/verdict_text.h"

namespace eaglet::apps {
namespace {

using monitor::Judgement;
using monitor::Verdict;

constexpr const char* kStyle =
    R"(:root { color-scheme: light dark; --back: #fbfbf9; --text: #1e2428; --soft: #606a70; --line: #d8dcd7; --card: #fff;
  --ok: #1d7a36; --warn: #a86400; --crit: #b3261e; --unknown: #606a70;
  --c0: #1764ab; --c1: #c2570c; --c2: #2b7d3a; --c3: #8b3a9c; --c4: #a08000; --c5: #6b7280;
  --c6: #0f8b8d; --c7: #c0392b; --c8: #5a4fcf; --c9: #7a5c3e; }
@media (prefers-color-scheme: dark) { :root { --back: #14181b; --text: #e8ebe8; --soft: #9aa5ac; --line: #333b40; --card: #1c2226;
  --ok: #74c985; --warn: #f0b054; --crit: #ff8a80; --unknown: #9aa5ac;
  --c0: #6db3f2; --c1: #f59a57; --c2: #74c985; --c3: #d08fe0; --c4: #d9bf4a; --c5: #a3adb5;
  --c6: #5fd0d2; --c7: #ff8577; --c8: #a79bff; --c9: #cfae8b; } }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 1180px; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .5rem; }
.soft { color: var(--soft); } .stale { opacity: .45; }
.head { background: var(--card); border: 1px solid var(--line); border-left: 6px solid var(--unknown); border-radius: 8px; padding: .8rem 1rem; }
.head.ok { border-left-color: var(--ok); } .head.warn { border-left-color: var(--warn); } .head.crit { border-left-color: var(--crit); }
b.ok { color: var(--ok); } b.warn { color: var(--warn); } b.crit { color: var(--crit); } b.unknown { color: var(--unknown); }
code { background: var(--back); border: 1px solid var(--line); border-radius: 4px; padding: 0 .3rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); gap: .8rem; }
.charts > svg { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; overflow-x: auto; font-size: 13px; }
svg { width: 100%; height: auto; user-select: none; } svg.hidden { position: absolute; width: 0; height: 0; } svg .selection { fill: var(--c0); opacity: .2; }
#view { color: var(--soft); } #view:empty { display: none; } button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 4px; }
button[aria-pressed=true] { color: var(--text); border-color: var(--text); }
svg text { fill: var(--text); font-family: system-ui, sans-serif; }
svg .title { font-size: 14px; font-weight: 600; } svg .tick { font-size: 11px; fill: var(--soft); } svg .label { font-size: 12px; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .mark { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 4 3; opacity: .7; }
svg path { pointer-events: none; } path.faint { opacity: .3; stroke-width: 1; } rect.band { opacity: .8; }
.b-load { fill: var(--c5); } .b-compile { fill: var(--c4); } .b-train { fill: var(--c2); } .b-validate { fill: var(--c3); } .b-save { fill: var(--c1); }
svg .tip { font-size: 11px; stroke: none; } svg line.tip { stroke: var(--soft); } .hit:hover .tip { visibility: visible; }
.figures { display: flex; flex-wrap: wrap; gap: .3rem 2rem; margin-top: .5rem; } .figures b { font-size: 1.5rem; display: block; line-height: 1.2; }
svg .mark.warn { stroke: var(--warn); } svg .mark.crit { stroke: var(--crit); } svg path { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
path.c0 { stroke: var(--c0); } path.c1 { stroke: var(--c1); } path.c2 { stroke: var(--c2); } path.c3 { stroke: var(--c3); } path.c4 { stroke: var(--c4); } path.c5 { stroke: var(--c5); }
path.c6 { stroke: var(--c6); } path.c7 { stroke: var(--c7); } path.c8 { stroke: var(--c8); } path.c9 { stroke: var(--c9); }
rect.c0, circle.c0 { fill: var(--c0); } rect.c1, circle.c1 { fill: var(--c1); } rect.c2, circle.c2 { fill: var(--c2); }
rect.c3, circle.c3 { fill: var(--c3); } rect.c4, circle.c4 { fill: var(--c4); } rect.c5, circle.c5 { fill: var(--c5); }
rect.c6, circle.c6 { fill: var(--c6); } rect.c7, circle.c7 { fill: var(--c7); } rect.c8, circle.c8 { fill: var(--c8); } rect.c9, circle.c9 { fill: var(--c9); }
)";

std::string level_cell(monitor::Level level) {
  return fmt::format("<b class=\"{0}\">{0}</b>", level_word(level));
}

std::string figure(const std::string& value, const std::string& name) {
  return fmt::format("<div><b>{}</b><span class=\"soft\">{}</span></div>", html_escape(value),
                     html_escape(name));
}

/// The few numbers that are read from across the room.
std::string figures_html(const Verdict& v) {
  std::string out;
  if (v.step >= 0) {
    out +=
        figure(std::to_string(v.step), v.total_steps > 0 ? fmt::format("step of {}", v.total_steps) : "step");
    if (v.total_steps > v.step)
      out += figure(
          fmt::format("{:.0f} %", 100.0 * static_cast<double>(v.step) / static_cast<double>(v.total_steps)),
          "of all steps");
  }
  if (!std::isnan(v.eta_seconds)) out += figure(human_duration(v.eta_seconds), "to go");
  const auto newest = [&](const std::string& metric, const char* name) {
    const auto& samples = v.log.series(metric);
    if (!samples.empty()) out += figure(fmt::format("{:.4g}", samples.back().value), name);
  };
  const std::string loss = v.log.first_loss_name();
  if (!loss.empty()) newest(loss, loss.c_str());
  newest("acceptance_length", "acceptance length");
  newest("tokens_per_second", "tokens/s");
  for (const Judgement& j : v.judgements)
    if (j.name == "cost" && !std::isnan(j.value))
      out += figure(fmt::format("{:.1f}", j.value), "GPU-hours so far");
  return out.empty() ? out : "<div class=\"figures\">" + out + "</div>";
}

std::string head_html(const Verdict& v) {
  const monitor::Level state = monitor::state_level(v.state.state);
  const monitor::Level level = state == monitor::Level::kOk ? v.level : state;
  std::string facts = std::string("phase ") + phase_word(v.state.phase);
  if (v.step >= 0)
    facts += v.total_steps > 0 ? fmt::format(", step {} of {}", v.step, v.total_steps)
                               : fmt::format(", step {}", v.step);
  if (!std::isnan(v.eta_seconds)) facts += ", eta " + human_duration(v.eta_seconds);
  if (!std::isnan(v.up_seconds)) facts += ", up " + human_duration(v.up_seconds);
  if (!std::isnan(v.state.silent_seconds))
    facts += ", last progress " + human_duration(v.state.silent_seconds) + " before";
  std::string out = fmt::format(
      "<div class=\"head {0}\"><b class=\"{0}\">{1}</b> {2}<div class=\"soft\">{3}; seen {4}</div>",
      level_word(level), state_word(v.state.state), html_escape(v.headline), html_escape(facts),
      std::isnan(v.wall) ? "?" : rfc3339_utc(v.wall));
  if (const std::string device = device_time_text(v); !device.empty())
    out += "<div class=\"soft\">device: " + html_escape(device) + "</div>";
  if (!v.state.silence.empty()) out += "<div>" + html_escape(v.state.silence) + "</div>";
  if (!v.advice.empty() && v.advice != v.next) out += "<div>do: " + html_escape(v.advice) + "</div>";
  if (!v.next.empty()) out += "<div>next: <code>" + html_escape(v.next) + "</code></div>";
  return out + figures_html(v) + "</div>\n";
}

/// Each with how long it has been at its level, as far as it was watched.
std::string judgement_rows(const Verdict& v, const WatchHistory& history) {
  std::string out =
      "<table><tr><th>layer</th><th></th><th>signal</th><th>finding</th><th>for</th><th>threshold</"
      "th><th>advice</th></tr>\n";
  for (const Judgement& j : v.judgements) {
    const double age = v.wall - history.level_since(j.name);
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"soft\">{}</td><td "
        "class=\"soft\">{}</td><td>{}</td></tr>\n",
        layer_word(j.layer), level_cell(j.level), html_escape(j.name), html_escape(j.reason),
        std::isnan(age) ? "" : human_duration(age), html_escape(j.threshold), html_escape(j.advice));
  }
  return out + "</table>\n";
}

Series metric_series(const Verdict& v, const std::string& metric, const std::string& label) {
  Series series;
  series.name = label;
  for (const auto& sample : v.log.series(metric))
    series.points.emplace_back(
        sample.step >= 0 ? static_cast<double>(sample.step) : static_cast<double>(sample.record),
        sample.value);
  return series;
}

void add_chart(const Verdict& v, const char* title, const std::vector<std::string>& metrics, bool from_zero,
               std::string* out) {
  std::vector<Series> all;
  for (const std::string& metric : metrics)
    if (!v.log.series(metric).empty()) all.push_back(metric_series(v, metric, metric));
  if (!all.empty()) *out += line_chart(title, "step", all, from_zero, {.values = true});
}

/// Where the time of a step goes, as far as the trainer tells.
void add_step_time(const Verdict& v, std::string* out) {
  constexpr std::pair<const char*, const char*> kParts[] = {{"step_seconds", "step"},
                                                            {"data_wait_seconds", "data"},
                                                            {"forward_seconds", "forward"},
                                                            {"backward_seconds", "backward"},
                                                            {"optimizer_seconds", "optimizer"}};
  std::vector<Series> all;
  for (const auto& [metric, label] : kParts)
    if (!v.log.series(metric).empty()) all.push_back(metric_series(v, metric, label));
  if (!all.empty())
    *out += line_chart("seconds per step, and what takes them", "step", all, true, {.values = true});
}

/// The device's part of it by kind of op.
void add_device_time(const Verdict& v, std::string* out) {
  std::vector<Series> all;
  for (const std::string_view op : monitor::device_ops())
    if (const std::string metric = monitor::device_time_metric(op); !v.log.series(metric).empty())
      all.push_back(metric_series(v, metric, std::string(op)));
  if (all.empty()) return;
  *out +=
      line_chart("seconds on the device by kind of op, where measured", "step", all, true, {.values = true});
}

/// Losses by drafting step: raw values faint, a running mean over them, and what a uniform guess would cost.
void add_losses(const Verdict& v, std::string* out) {
  constexpr std::size_t kFewPoints = 40;
  std::vector<Series> faint, clear;
  for (const std::string& name : v.log.loss_names()) {
    if (v.log.series(name).empty()) continue;
    Series series = metric_series(v, name, name);
    series.color = static_cast<int>(clear.size());
    if (series.points.size() > kFewPoints) {
      faint.push_back(series);
      faint.back().faint = true;
      series = smoothed(series, std::max(0.05, 20.0 / static_cast<double>(series.points.size())));
    }
    clear.push_back(std::move(series));
  }
  if (clear.empty()) return;
  Overlay overlay{.values = true};
  if (v.log.first_loss_name() == "loss_0" && !std::isnan(v.uniform_loss))
    overlay.heights.push_back({v.uniform_loss, fmt::format("a uniform guess: ln({:.0f}) = {:.2f}",
                                                           std::exp(v.uniform_loss), v.uniform_loss)});
  std::vector<Series> all = std::move(faint);
  all.insert(all.end(), clear.begin(), clear.end());
  *out += line_chart("training loss by drafting step", "step", all, false, overlay);
}

std::vector<std::string> by_depth(const Verdict& v, const std::string& start) {
  std::vector<std::string> names;
  for (int k = 0; k < 64 && !v.log.series(start + std::to_string(k)).empty(); ++k)
    names.push_back(start + std::to_string(k));
  return names;
}

double minutes_watched(const WatchHistory& history, double wall) {
  return (wall - history.points().front().wall) / 60;
}

/// What happened, over the curves of what was watched: changes of state, of phase and of the worst level.
std::vector<Mark> marks_of(const WatchHistory& history) {
  std::vector<Mark> marks;
  for (const HistoryEvent& event : history.events())
    marks.push_back({minutes_watched(history, event.wall), rfc3339_utc(event.wall) + "  " + event.text,
                     level_word(event.level)});
  return marks;
}

const char* band_style(monitor::Phase phase) {
  using monitor::Phase;
  if (phase == Phase::kCompile) return "b-compile";
  if (phase == Phase::kTrain || phase == Phase::kServe) return "b-train";
  if (phase == Phase::kValidate) return "b-validate";
  return phase == Phase::kSave ? "b-save" : "b-load";
}

/// Events as lines and phases as a strip, over what was watched.
Overlay overlay_of(const WatchHistory& history) {
  Overlay overlay{.marks = marks_of(history), .values = true};
  for (const PhaseSpan& span : history.phases())
    overlay.bands.push_back(
        {minutes_watched(history, span.from), minutes_watched(history, span.to),
         fmt::format("{}: {}", phase_word(span.phase), human_duration(span.to - span.from)),
         band_style(span.phase)});
  return overlay;
}

/// A point of a curve; the curve breaks where nobody watched.
void add_point(const WatchHistory& history, double wall, double value, double* before, Series* series) {
  if (!std::isnan(*before) && history.hole_between(*before, wall))
    series->points.emplace_back(minutes_watched(history, *before), monitor::kNotKnown);
  *before = wall;
  series->points.emplace_back(minutes_watched(history, wall), value);
}

void add_history(const WatchHistory& history, const char* title, double HistoryPoint::*field,
                 std::string* out) {
  Series series;
  series.name = title;
  bool known = false;
  double before = monitor::kNotKnown;
  for (const HistoryPoint& point : history.points()) {
    add_point(history, point.wall, point.*field, &before, &series);
    known = known || !std::isnan(point.*field);
  }
  if (known) *out += line_chart(title, "minutes watched", {series}, true, overlay_of(history));
}

/// A curve for each GPU of the run: the odd one stands out.
void add_devices(const Verdict& v, const WatchHistory& history, const char* title,
                 std::vector<double> HistoryPoint::*field, std::string* out) {
  const std::size_t count = v.activity.devices.size();
  if (count < 2) return;
  std::vector<Series> all(count);
  bool known = false;
  for (std::size_t i = 0; i < count; ++i) all[i].name = fmt::format("GPU {}", v.activity.devices[i].index);
  for (const HistoryPoint& point : history.points())
    for (std::size_t i = 0; i < count && i < (point.*field).size(); ++i) {
      all[i].points.emplace_back(minutes_watched(history, point.wall), (point.*field)[i]);
      known = known || !std::isnan((point.*field)[i]);
    }
  if (known) *out += line_chart(title, "minutes watched", all, true, overlay_of(history));
}

std::string charts_html(const Verdict& v, const WatchHistory& history) {
  std::string out;
  add_losses(v, &out);
  auto accuracy = by_depth(v, "full_acc_");
  if (accuracy.empty()) accuracy = by_depth(v, "acc_");
  if (accuracy.empty()) accuracy = {"acc"};
  add_chart(v, "accuracy by drafting step", accuracy, true, &out);
  add_chart(v, "acceptance length", {"acceptance_length", "val_acceptance_length"}, false, &out);
  add_chart(v, "held-out loss", {"val_loss"}, false, &out);
  add_chart(v, "learning rate", {"lr"}, true, &out);
  add_chart(v, "tokens per second", {"tokens_per_second"}, true, &out);
  add_step_time(v, &out);
  add_device_time(v, &out);
  add_chart(v, "gradient norm", {"grad_norm"}, true, &out);
  add_history(history, "GPU busy (%)", &HistoryPoint::busy_pct, &out);
  add_history(history, "GPU power (W, mean)", &HistoryPoint::power_w, &out);
  add_devices(v, history, "busy by GPU (%)", &HistoryPoint::device_busy_pct, &out);
  add_devices(v, history, "power by GPU (W)", &HistoryPoint::device_power_w, &out);
  add_history(history, "GPU memory (bytes, all)", &HistoryPoint::used_bytes, &out);
  add_history(history, "CPU cores", &HistoryPoint::cores, &out);
  return out;
}

/// When which step was, for an axis of time: as the log prints it, else as it was watched. Of a log that
/// prints no date the newest record is taken as just as old as the log.
std::vector<std::pair<double, double>> step_times(const Verdict& v, const WatchHistory& history) {
  std::vector<std::pair<double, double>> times;
  // Of steps within one printed second the first one counts: the others lie between it and the next.
  const auto add = [&](double step, double time) {
    if (step < 0 || !std::isfinite(time)) return;
    if (times.empty() || (step > times.back().first && time > times.back().second))
      times.emplace_back(step, time);
  };
  const auto& printed = v.log.series("printed_seconds");
  constexpr double kAYear = 365 * 86400.0;
  const bool no_date = !printed.empty() && printed.back().value < kAYear;
  const double written = v.wall - v.activity.log_silent_seconds;
  const double shift = no_date && !std::isnan(written) ? written - printed.back().value : 0;
  for (const auto& sample : printed) add(static_cast<double>(sample.step), sample.value + shift);
  if (times.size() >= 2) return times;
  times.clear();
  for (const HistoryPoint& point : history.points()) add(static_cast<double>(point.step), point.wall);
  return times;
}

/// Attributes of the charts' parent (watch_page_script.cc).
std::string clock_facts(const Verdict& v, const WatchHistory& history) {
  constexpr std::size_t kMostTimes = 300;
  const auto times = step_times(v, history);
  std::string out;
  if (times.size() >= 2) {
    out = " data-times=\"";
    const std::size_t stride = times.size() / kMostTimes + 1;
    for (std::size_t i = 0; i < times.size(); i += stride)
      out += fmt::format("{:.0f} {:.1f} ", times[i].first, times[i].second);
    if ((times.size() - 1) % stride != 0)
      out += fmt::format("{:.0f} {:.1f} ", times.back().first, times.back().second);
    out += "\"";
  }
  if (!history.points().empty()) out += fmt::format(" data-epoch=\"{:.1f}\"", history.points().front().wall);
  return out;
}

std::string page_around(const std::string& title, const std::string& head, const std::string& main) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
         "content=\"width=device-width, "
         "initial-scale=1\">\n<title>" +
         html_escape(title) + "</title>\n" + head + "</head>\n<body>\n<h1>" + html_escape(title) +
         " <span id=\"age\" class=\"soft\"></span></h1>\n<div id=\"view\"></div>\n<main>\n" + main +
         "</main>\n</body>\n</html>\n";
}

/// Only this style and this script, by their hashes: what stands in a log or in a name runs nothing.
std::string style_inside() {
  const std::string style = std::string("\n") + kStyle, script = std::string("\n") + kWatchViewScript;
  return fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src {}; script-src "
      "{}\">\n<style>{}</style>\n<script>{}</script>\n",
      source_hash(style), source_hash(script), style, script);
}

}  // namespace

const char* watch_page_style() {
  return kStyle;
}
const std::string& watch_page_script() {
  static const std::string both = std::string(kWatchViewScript) + kWatchLiveScript;
  return both;
}

std::string watch_page_content(const Verdict& v, const WatchHistory& history) {
  std::string out = head_html(v) + "<h2>Judgements</h2>\n" + judgement_rows(v, history);
  const auto evidences = deciding_evidence(v);
  if (!evidences.empty()) {
    out += "<h2>Because</h2>\n<ul>\n";
    for (const auto& evidence : evidences)
      out += fmt::format("<li>{}: {}</li>\n", evidence.progress ? "progress" : "stall",
                         html_escape(evidence.text));
    out += "</ul>\n";
  }
  if (const std::string charts = charts_html(v, history); !charts.empty())
    out += "<h2>Curves</h2>\n" + plot_area() +
           fmt::format("\n<div class=\"charts\"{}>\n", clock_facts(v, history)) + charts + "</div>\n";
  if (!history.events().empty()) {
    out += "<h2>Events</h2>\n<table>\n";
    for (auto it = history.events().rbegin(); it != history.events().rend(); ++it)
      out += fmt::format("<tr><td class=\"soft\">{}</td><td>{}</td><td>{}</td></tr>\n", rfc3339_utc(it->wall),
                         level_cell(it->level), html_escape(it->text));
    out += "</table>\n";
  }
  if (!v.log.last_lines.empty()) {
    out += "<h2>End of the log</h2>\n<pre>";
    for (const std::string& line : v.log.last_lines) out += html_escape(line) + "\n";
    out += "</pre>\n";
  }
  return out;
}

std::string watch_page_file(const Verdict& v, const WatchHistory& history) {
  return page_around("eaglet watch: " + v.name, style_inside(), watch_page_content(v, history));
}

std::string watch_page_served(const Verdict& v, const WatchHistory& history) {
  return page_around(
      "eaglet watch: " + v.name,
      "<link rel=\"stylesheet\" href=\"/watch.css\">\n<script defer src=\"/watch.js\"></script>\n",
      watch_page_content(v, history));
}

std::string compare_page(const Verdict& a, const Verdict& b, const std::string& differences_html) {
  std::string charts;
  std::vector<std::string> names = a.log.loss_names();
  for (const char* more :
       {"full_acc_0", "acc", "acceptance_length", "val_loss", "lr", "tokens_per_second", "grad_norm"})
    names.emplace_back(more);
  for (const std::string& name : names)
    if (!a.log.series(name).empty() && !b.log.series(name).empty())
      charts += line_chart(name, "step", {metric_series(a, name, a.name), metric_series(b, name, b.name)},
                           false, {.values = true});
  return page_around(a.name + " and " + b.name, style_inside(),
                     differences_html + "<h2>What it did</h2>\n" + plot_area() +
                         "\n<div class=\"charts\">\n" + charts + "</div>\n");
}

}  // namespace eaglet::apps
