#include "apps/watch_compare.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "apps/svg_chart.h"
#include "apps/watch_page.h"
#include "apps/watch_target.h"
#include "monitor/verdict.h"

namespace eaglet::apps {
namespace {

using monitor::Verdict;

struct Side {
  Verdict verdict;
  std::map<std::string, std::string> settings;
};

std::string cell_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Result<Side> look_at(const std::string& target, const monitor::Thresholds& thresholds) {
  EAGLET_ASSIGN_OR_RETURN(WatchedRun run, open_run(target));
  run.sampler->sample();
  Side side;
  const monitor::RunSeries& series = run.sampler->series();
  side.verdict = monitor::make_verdict(series, thresholds);
  if (series.config && series.config->is_object())
    for (const auto& [name, value] : series.config->items())
      if (!value.is_object() && cell_text(value).size() < 200) side.settings[name] = cell_text(value);
  for (const auto& [name, value] : series.log.settings) side.settings.emplace(name, value);
  return side;
}

/// The value at the newest step that both have.
struct Pair {
  std::int64_t step = -1;
  double a = monitor::kNotKnown, b = monitor::kNotKnown;
};
Pair at_common_step(const Verdict& a, const Verdict& b, const std::string& metric) {
  std::map<std::int64_t, double> first;
  for (const auto& sample : a.log.series(metric)) first[sample.step] = sample.value;
  Pair pair;
  for (const auto& sample : b.log.series(metric))
    if (const auto it = first.find(sample.step); it != first.end() && sample.step >= pair.step)
      pair = {sample.step, it->second, sample.value};
  return pair;
}

}  // namespace

Result<Comparison> compare_runs(const std::string& a, const std::string& b,
                                const monitor::Thresholds& thresholds) {
  EAGLET_ASSIGN_OR_RETURN(Side one, look_at(a, thresholds));
  EAGLET_ASSIGN_OR_RETURN(Side two, look_at(b, thresholds));
  if (one.verdict.name == two.verdict.name) {
    one.verdict.name = a;
    two.verdict.name = b;
  }
  Comparison out;
  out.json = {{"schema", 1},
              {"a", one.verdict.name},
              {"b", two.verdict.name},
              {"settings", Json::array()},
              {"metrics", Json::array()}};
  out.text = fmt::format("{:<26} {:>22} {:>22}\n", "what changed", one.verdict.name.substr(0, 22),
                         two.verdict.name.substr(0, 22));
  std::string rows;
  std::set<std::string> names;
  for (const Side* side : {&one, &two})
    for (const auto& [name, value] : side->settings) names.insert(name);
  for (const std::string& name : names) {
    const std::string x = one.settings.count(name) != 0 ? one.settings[name] : "-",
                      y = two.settings.count(name) != 0 ? two.settings[name] : "-";
    if (x == y || name == "run_id" || name == "output_dir") continue;
    out.text += fmt::format("{:<26} {:>22.22} {:>22.22}\n", name, x, y);
    out.json["settings"].push_back({{"name", name}, {"a", x}, {"b", y}});
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", html_escape(name), html_escape(x),
                        html_escape(y));
  }
  out.text += "\nwhat it did (at the newest step both have)\n";
  std::vector<std::string> metrics = one.verdict.log.loss_names();
  for (const char* more : {"full_acc_0", "acc", "acceptance_length", "val_loss", "val_acceptance_length",
                           "tokens_per_second", "grad_norm", "lr"})
    metrics.emplace_back(more);
  for (const std::string& metric : metrics) {
    const Pair pair = at_common_step(one.verdict, two.verdict, metric);
    if (std::isnan(pair.a) && std::isnan(pair.b)) continue;
    out.text += fmt::format("{:<26} {:>22.5g} {:>22.5g}   step {}{}\n", metric, pair.a, pair.b, pair.step,
                            pair.a != 0 && std::isfinite(pair.b / pair.a)
                                ? fmt::format("  {:+.1f} %", 100 * (pair.b / pair.a - 1))
                                : "");
    out.json["metrics"].push_back({{"name", metric},
                                   {"step", pair.step},
                                   {"a", std::isfinite(pair.a) ? Json(pair.a) : Json(nullptr)},
                                   {"b", std::isfinite(pair.b) ? Json(pair.b) : Json(nullptr)}});
  }
  out.html = compare_page(
      one.verdict, two.verdict,
      fmt::format("<h2>What changed</h2>\n<table><tr><th></th><th>{}</th><th>{}</th></tr>\n{}</table>\n",
                  html_escape(one.verdict.name), html_escape(two.verdict.name), rows));
  return out;
}

}  // namespace eaglet::apps
