#include <cmath>

#include "monitor/log_point.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

/// "50", "1.2k", "3M", "?": a count with tqdm's unit_scale.
std::optional<double> scaled_count(std::string_view text) {
  std::string_view rest;
  const auto value = leading_number(text, &rest);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  if (rest.empty()) return value;
  if (rest.size() != 1) return std::nullopt;
  const char units[] = "kMGT";
  double scale = 1;
  for (const char* unit = units; *unit != 0; ++unit) {
    scale *= 1000;
    if (*unit == rest.front()) return *value * scale;
  }
  return std::nullopt;
}

/// "00:31", "1:04:51", "2 days 01:00:00", "?", "61": a printed duration, as far as it goes.
bool is_duration(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.size() > 24) return false;
  bool digit = false;
  for (const char c : text) {
    digit = digit || is_digit(c) || c == '?';
    const bool day = c == 'd' || c == 'a' || c == 'y' || c == 's' || c == ' ';
    if (!is_digit(c) && c != ':' && c != '?' && c != '-' && c != '.' && !day) return false;
  }
  return digit;
}

/// "3.00s/step", "6.81it/s", "? it/s": seconds of one unit; *is_rate false when it is no rate at all.
double seconds_of_rate(std::string_view text, bool* is_rate) {
  text = trim(text);
  const std::size_t slash = text.find('/');
  *is_rate = slash != std::string_view::npos && slash > 0 && slash + 1 < text.size();
  if (!*is_rate) return LogPoint().seconds_per_step;
  std::string_view rest;
  const auto value = leading_number(text, &rest);
  if (!value) {
    *is_rate = text.front() == '?' && text.find(' ') == std::string_view::npos;
    *is_rate = *is_rate || starts_with(text, "? ");
    return LogPoint().seconds_per_step;
  }
  rest = trim(rest);
  if (starts_with(rest, "s/")) return *value;
  const bool per_second = rest.size() > 2 && rest.substr(rest.size() - 2) == "/s";
  *is_rate = per_second;
  return per_second && *value > 0 ? 1 / *value : LogPoint().seconds_per_step;
}

/// "[00:24<02:48,  3.00s/step, loss=8.33]": fills rate and post.
bool read_bracket(std::string_view inside, BarLine* bar) {
  const std::size_t comma = inside.find(',');
  if (comma == std::string_view::npos) return false;
  const std::string_view times = inside.substr(0, comma);
  const std::size_t less = times.find('<');
  if (!is_duration(times.substr(0, less))) return false;
  if (less != std::string_view::npos && !is_duration(times.substr(less + 1))) return false;
  std::string_view after = inside.substr(comma + 1);
  const std::size_t next = after.find(',');
  bool is_rate = false;
  bar->seconds_per_unit = seconds_of_rate(after.substr(0, next), &is_rate);
  if (!is_rate) return false;
  if (next != std::string_view::npos) bar->post = trim(after.substr(next + 1));
  return true;
}

/// The count in front of the bracket: "8/64", "37step", "310/310"; and in front of it "12%|###|".
bool read_count(std::string_view before, BarLine* bar) {
  before = trim(before);
  const std::size_t start = before.find_last_of(" |");
  const std::string_view count = start == std::string_view::npos ? before : before.substr(start + 1);
  const std::size_t slash = count.find('/');
  if (slash != std::string_view::npos) {
    bar->done = scaled_count(count.substr(0, slash));
    bar->total = scaled_count(count.substr(slash + 1));
    if (!bar->done) return false;
  } else {
    std::string_view unit;
    bar->done = leading_number(count, &unit);
    if (!bar->done || unit.empty()) return false;
  }
  std::string_view front = start == std::string_view::npos ? std::string_view() : before.substr(0, start + 1);
  if (const std::size_t mark = front.rfind("%|"); mark != std::string_view::npos)
    front = front.substr(0, mark + 1);
  else if (const std::size_t percent = front.rfind("% "); percent != std::string_view::npos)
    front = front.substr(0, percent + 1);  // rich: "Epoch 0 100% ---- "
  if (!front.empty() && front.back() == '%') {
    front.remove_suffix(1);
    std::size_t digits = front.size();
    while (digits > 0 && is_digit(front[digits - 1])) --digits;
    bar->percent = number(front.substr(digits));
    front = front.substr(0, digits);
  }
  front = trim(front);
  if (!front.empty() && front.back() == ':') front.remove_suffix(1);
  bar->description = front;
  return true;
}

}  // namespace

std::optional<BarLine> find_bar(std::string_view segment) {
  for (std::size_t open = segment.find('['); open != std::string_view::npos;
       open = segment.find('[', open + 1)) {
    const std::size_t close = segment.find(']', open);
    if (close == std::string_view::npos) return std::nullopt;
    BarLine bar;
    if (!read_bracket(segment.substr(open + 1, close - open - 1), &bar)) continue;
    if (!read_count(segment.substr(0, open), &bar)) continue;
    bar.rest = segment.substr(close + 1);
    return bar;
  }
  return std::nullopt;
}

BarKind bar_kind(std::string_view description) {
  const std::string text = lower(description);
  for (const char* word : {"val", "eval", "sanity", "test", "predict"})
    if (contains(text, word)) return BarKind::kValidate;
  for (const char* word : {"load", "shard", "map", "token", "filter", "download", "fetch", "pack", "process",
                           "captur", "compil", "prefill"})
    if (contains(text, word)) return BarKind::kLoad;
  return BarKind::kTrain;
}

LogPoint point_of(const BarLine& bar) {
  LogPoint point;
  point.from_bar = true;
  point.seconds_per_step = bar.seconds_per_unit;
  point.step = static_cast<std::int64_t>(std::min(*bar.done, 9e15));
  if (bar.total) point.total = static_cast<std::int64_t>(std::min(*bar.total, 9e15));
  for (const std::string_view pair : split(bar.post, ',')) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    if (const auto value = number(pair.substr(equals + 1))) point.take(trim(pair.substr(0, equals)), *value);
  }
  // A bar of one epoch counts from 0 again in each: "Epoch 1: 42%", "Training Epoch 0: 7%".
  const std::string text = lower(bar.description);
  if (const std::size_t at = text.find("epoch "); at != std::string::npos) {
    std::string_view rest;
    const auto epoch = leading_number(std::string_view(text).substr(at + 6), &rest);
    if (epoch && *epoch >= 0 && *epoch < 1e6) {
      point.epoch = *epoch;
      if (point.total) *point.step += static_cast<std::int64_t>(*epoch) * *point.total;
      point.total.reset();
    }
  }
  return point;
}

}  // namespace eaglet::monitor
