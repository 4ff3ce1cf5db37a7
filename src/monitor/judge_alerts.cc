#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "monitor/judges.h"

namespace eaglet::monitor {
namespace {

/// "error" and its kin; anything else that is not mere information warns.
Level level_of(const std::string& word) {
  if (word == "error" || word == "critical") return Level::kCrit;
  return word == "info" || word == "debug" ? Level::kOk : Level::kWarn;
}

std::string text_of(const TrackerAlert& alert, double age_seconds) {
  std::string text = fmt::format("the trainer itself says ({}", alert.level);
  if (alert.step >= 0) text += fmt::format(", step {}", alert.step);
  if (!std::isnan(age_seconds)) text += fmt::format(", {} ago", human_duration(std::max(0.0, age_seconds)));
  text += "): " + alert.title;
  return alert.text.empty() ? text : text + ": " + alert.text;
}

}  // namespace

Judgements judge_alerts(const Case& c) {
  // The worst of those that are news, else the newest one: a run that went on for long has got over it.
  const TrackerAlert* told = nullptr;
  Level level = Level::kOk;
  double age = kNotKnown;
  for (const TrackerAlert& alert : c.series.alerts) {
    const double seconds = c.series.views.back().wall - alert.time;
    const Level now = seconds < c.thresholds.alert_seconds ? level_of(alert.level) : Level::kOk;
    if (told != nullptr && now < level) continue;
    told = &alert;
    level = now;
    age = seconds;
  }
  if (told == nullptr) return {};
  Judgement j = learning_judgement("alert", level, text_of(*told, age));
  j.value = age;
  j.unit = "s ago";
  j.threshold = fmt::format("as it says, for {}", human_duration(c.thresholds.alert_seconds));
  if (level != Level::kOk) j.advice = "raised by the trainer's own code: its condition stands there";
  return {j};
}

}  // namespace eaglet::monitor
