#include "apps/report_html.h"

#include <fmt/format.h>

#include <map>

#include "apps/svg_chart.h"
#include "base/clock.h"
#include "generated/apps/report_template.h"

namespace eaglet::apps {
namespace {

using Values = std::vector<double> LogRecord::*;
using Value = double LogRecord::*;

Series curve_of(const std::vector<LogRecord>& log, const std::string& event, const std::string& name,
                Value value) {
  Series series{.name = name, .points = {}, .dots = event == "validation"};
  for (const LogRecord& record : log)
    if (record.event == event) series.points.emplace_back(static_cast<double>(record.step), record.*value);
  return series;
}

/// One curve per depth, then one row of dots per depth from the validations.
std::vector<Series> curves_by_depth(const std::vector<LogRecord>& log, const std::string& event,
                                    const std::string& name, Values values) {
  std::vector<Series> all;
  for (const LogRecord& record : log) {
    if (record.event != event) continue;
    const std::vector<double>& list = record.*values;
    while (all.size() < list.size())
      all.push_back(
          {.name = fmt::format("{} {}", name, all.size() + 1), .points = {}, .dots = event == "validation"});
    for (std::size_t k = 0; k < list.size(); ++k)
      all[k].points.emplace_back(static_cast<double>(record.step), list[k]);
  }
  return all;
}

std::string training_charts(const std::vector<LogRecord>& log) {
  std::string out =
      line_chart("Loss by depth", "step", curves_by_depth(log, "step", "depth", &LogRecord::loss), false);
  out += line_chart("Held-out loss by depth", "step",
                    curves_by_depth(log, "validation", "depth", &LogRecord::loss), false);
  out += line_chart("Right at depths 1..k, inside the draft vocabulary", "step",
                    curves_by_depth(log, "step", "depth", &LogRecord::full_acc), true);
  out += line_chart("Acceptance length over all rows, inside the draft vocabulary", "step",
                    {curve_of(log, "step", "training", &LogRecord::acceptance_length),
                     curve_of(log, "validation", "held out", &LogRecord::acceptance_length)},
                    false);
  out += line_chart("Tokens per second", "step",
                    {curve_of(log, "step", "real tokens/s", &LogRecord::tokens_per_second)}, true);
  out += line_chart("Learning rate", "step", {curve_of(log, "step", "rate", &LogRecord::lr)}, true);
  out += line_chart("Gradient norm before clipping", "step",
                    {curve_of(log, "step", "norm", &LogRecord::grad_norm)}, true);
  return out + line_chart("Seconds per step", "step",
                          {curve_of(log, "step", "whole step", &LogRecord::step_seconds),
                           curve_of(log, "step", "waiting for data", &LogRecord::data_wait_seconds)},
                          true);
}

std::string acceptance_charts(const Json& report) {
  std::vector<Bar> held_out;
  const Json& full = report.at("acceptance_by_depth");
  const Json& inside = report.at("right_inside_draft_vocabulary_by_depth");
  for (std::size_t k = 0; k < full.size(); ++k) {
    const double value = full[k].get<double>(), in_vocabulary = inside[k].get<double>();
    held_out.push_back({fmt::format("depth {}", k + 1), value, fmt::format("{:.3f}", value), 0});
    held_out.push_back({"inside draft vocabulary", in_vocabulary, fmt::format("{:.3f}", in_vocabulary), 5});
  }
  std::string out = bar_chart("Held out: share accepted at depths 1..k", held_out);
  if (!report.contains("served") || report["served"].empty()) return out;
  std::vector<Bar> served, speeds;
  const Json& longest = report["served"].back();
  const double passes = longest.at("passes").get<double>();
  const Json& accepted = longest.at("accepted_at");
  for (std::size_t k = 0; k < accepted.size(); ++k) {
    const double share = passes > 0 ? accepted[k].get<double>() / passes : 0;
    served.push_back({fmt::format("depth {}", k + 1), share, fmt::format("{:.3f}", share), 1});
  }
  out += bar_chart(fmt::format("Served, draft length {}: accepted per pass, by depth",
                               longest.at("draft_length").get<int>()),
                   served);
  const double plain = report.at("tokens_per_second_without_draft").get<double>();
  speeds.push_back({"without the draft", plain, fmt::format("{:.1f} tokens/s", plain), 5});
  for (const Json& length : report["served"]) {
    const double speed = length.at("tokens_per_second").get<double>();
    speeds.push_back({fmt::format("draft length {}", length.at("draft_length").get<int>()), speed,
                      fmt::format("{:.1f} tokens/s", speed), 2});
  }
  return out + bar_chart("Served: tokens per second", speeds);
}

std::string served_table(const Json& report) {
  if (!report.contains("served")) return {};
  std::string rows;
  for (const Json& length : report["served"])
    rows += fmt::format(
        "<tr><td class=\"n\">{}</td><td class=\"n\">{:.3f}</td><td class=\"n\">{:.3f}</td><td "
        "class=\"n\">{:.1f}</td><td class=\"n\">{:.2f}x</td></tr>",
        length.at("draft_length").get<int>(), length.at("tokens_per_pass").get<double>(),
        length.at("break_even_tokens_per_pass").get<double>(), length.at("tokens_per_second").get<double>(),
        length.at("speed_up").get<double>());
  return "<h2>Served by " + html_escape(report.value("served_with", "llama.cpp")) +
         ", greedy</h2><table><tr><th class=\"n\">draft length</th><th "
         "class=\"n\">tokens per pass</th><th class=\"n\">break-even at</th>"
         "<th class=\"n\">tokens/s</th><th class=\"n\">against no draft</th></tr>" +
         rows + "</table>";
}

std::string stage_charts(const Json& report) {
  std::vector<Bar> seconds, bytes;
  int color = 0;
  for (const Json& stage : report.at("stages")) {
    const std::string name = stage.at("stage").get<std::string>();
    const double spent = stage.at("seconds").get<double>(), written = stage.at("bytes").get<double>();
    seconds.push_back({name, spent, human_duration(spent), color});
    bytes.push_back({name, written, human_bytes(written), color});
    color = (color + 1) % static_cast<int>(kChartColors);
  }
  return bar_chart("Time per stage", seconds) + bar_chart("Bytes per stage", bytes);
}

std::string big_number(const std::string& value, const std::string& what) {
  return "<div><b>" + html_escape(value) + "</b><span class=\"soft\">" + html_escape(what) + "</span></div>";
}

std::string numbers(const Json& report) {
  const auto number = [&](const char* key) { return report.at(key).get<double>(); };
  std::string out =
      big_number(fmt::format("{:.3f}", number("held_out_acceptance_length")), "held-out acceptance length");
  if (report.at("served_acceptance_length").is_number())
    out += big_number(fmt::format("{:.3f}", number("served_acceptance_length")),
                      fmt::format("served, draft length {}", report.at("served_draft_length").get<int>()));
  out += big_number(fmt::format("{:.0f}", number("train_tokens_per_second")), "training tokens per second");
  out += big_number(fmt::format("{:.0f}", number("answers")), "answers");
  out += big_number(fmt::format("{:.0f}", number("tokens")),
                    fmt::format("tokens, {:.0f} % supervised", 100 * number("supervised_share")));
  return out + big_number(human_bytes(number("state_bytes")),
                          report.at("states_kept") == true ? "of hidden states" : "of hidden states, freed");
}

std::string result_rows(const Json& report) {
  std::string rows;
  for (const auto& [key, value] : report.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : json_line(value);
    rows += "<tr><td>" + html_escape(key) + "</td><td>" + html_escape(text) + "</td></tr>\n";
  }
  return rows;
}

}  // namespace

std::string report_html(const Json& report, const std::vector<LogRecord>& log, const std::string& recipe) {
  const std::string sentence = report.value("verdict", "");
  const std::map<std::string, std::string> parts = {
      {"TITLE", html_escape("eaglet: " + report.at("run").get<std::string>())},
      {"SUBTITLE",
       html_escape(fmt::format("target {}, draft {}, finished {}", report.at("model").get<std::string>(),
                               report.at("draft").get<std::string>(),
                               report.at("finished_time").get<std::string>()))},
      {"NUMBERS", numbers(report)},
      {"VERDICT", sentence.empty() ? "" : "<p class=\"verdict\">" + html_escape(sentence) + "</p>"},
      {"ACCEPTANCE_CHARTS", acceptance_charts(report)},
      {"SERVED_TABLE", served_table(report)},
      {"TRAINING_CHARTS", training_charts(log)},
      {"STAGE_CHARTS", stage_charts(report)},
      {"RESULT_ROWS", result_rows(report)},
      {"RECIPE", html_escape(recipe)}};
  // One pass over the template, so that a value which looks like a mark is left alone.
  const std::string page = kReportTemplate;
  std::string out;
  std::size_t at = 0;
  for (std::size_t mark; (mark = page.find("{{", at)) != std::string::npos;) {
    const std::size_t end = page.find("}}", mark);
    out += page.substr(at, mark - at) + parts.at(page.substr(mark + 2, end - mark - 2));
    at = end + 2;
  }
  return out + page.substr(at);
}

}  // namespace eaglet::apps
