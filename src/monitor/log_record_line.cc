#include <cmath>

#include "formats/json.h"
#include "monitor/log_point.h"
#include "monitor/metric_names.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '/' ||
         c == '.';
}

/// A value with a unit that does not change it: "2.85s", "31.2%", "0.35x".
std::optional<double> value_of(std::string_view text) {
  text = trim(text);
  while (!text.empty() &&
         (text.back() == ')' || text.back() == ']' || text.back() == ';' || text.back() == ','))
    text.remove_suffix(1);
  if (const auto value = number(text)) return value;
  std::string_view rest;
  const auto value = leading_number(text, &rest);
  if (!value) return std::nullopt;
  if (rest == "%") return *value / 100;
  if (rest == "ms") return *value / 1000;
  return rest == "s" || rest == "x" ? value : std::nullopt;
}

/// "'acc_0': 0.3127, 'loss': '9.0526'" between braces, as Python prints a dict.
bool take_dict(std::string_view line, LogPoint* point) {
  const std::size_t open = line.find("{'");
  if (open == std::string_view::npos) return false;
  const std::size_t close = line.find('}', open);
  if (close == std::string_view::npos) return false;
  bool any = false;
  std::string_view body = line.substr(open + 1, close - open - 1);
  while (!body.empty()) {
    const std::size_t quote = body.find('\'');
    if (quote == std::string_view::npos) break;
    const std::size_t end = body.find('\'', quote + 1);
    if (end == std::string_view::npos) break;
    const std::string_view name = body.substr(quote + 1, end - quote - 1);
    body.remove_prefix(end + 1);
    if (body.empty() || body.front() != ':') continue;
    body.remove_prefix(1);
    const std::size_t comma = body.find(',');
    if (const auto value = value_of(body.substr(0, comma))) any = point->take(name, *value) || any;
    body = comma == std::string_view::npos ? std::string_view() : body.substr(comma + 1);
  }
  return any;
}

/// "epoch=0 step=2 train_loss=10.87" and "loss: 7.3, lr: 1e-4"; a blank may be missing after a comma.
bool take_pairs(std::string_view line, LogPoint* point) {
  bool any = false;
  for (std::size_t at = line.find_first_of("=:"); at != std::string_view::npos;
       at = line.find_first_of("=:", at + 1)) {
    std::size_t start = at;
    while (start > 0 && is_name_char(line[start - 1])) --start;
    if (start == at) continue;
    std::size_t from = at + 1;
    if (line[at] == ':') {
      if (from >= line.size() || line[from] != ' ') continue;  // times and source positions
      while (from < line.size() && line[from] == ' ') ++from;
    }
    std::size_t end = from;
    while (end < line.size() && line[end] != ',' && line[end] != ' ' && line[end] != '|') ++end;
    if (const auto value = value_of(line.substr(from, end - from)))
      any = point->take(line.substr(start, at - start), *value) || any;
  }
  return any;
}

/// "step 41/141": the count after the word; advances *at past it.
bool take_step_words(const std::vector<std::string_view>& parts, std::size_t* at, LogPoint* point) {
  std::string_view count = parts[*at];
  while (!count.empty() &&
         (count.back() == ']' || count.back() == ':' || count.back() == ',' || count.back() == '|'))
    count.remove_suffix(1);
  const std::size_t slash = count.find('/');
  const auto step = whole_number(count.substr(0, slash));
  if (!step) return false;
  point->step = *step;
  if (slash != std::string_view::npos) point->total = whole_number(count.substr(slash + 1));
  ++*at;
  return true;
}

/// Our own line and llm.c's: "name number [number...]" and "number unit" after "step N/M".
bool take_step_line(std::string_view line, LogPoint* point) {
  while (!line.empty() && (line.front() == '[' || line.front() == ' ')) line.remove_prefix(1);
  const auto parts = words(line);
  if (parts.size() < 2 || (lower(parts[0]) != "step" && lower(parts[0]) != "iter")) return false;
  std::size_t at = 1;
  if (!take_step_words(parts, &at, point)) return false;
  bool any = false;
  while (at < parts.size()) {
    std::string_view rest;
    const std::string_view word = parts[at];
    if (const auto value = leading_number(word, &rest); value && at + 1 < parts.size()) {
      if (contains(word, "%") && contains(line, "MFU")) any = point->take("mfu", *value / 100) || any;
      if (parts[at + 1] == "ms|" || parts[at + 1] == "ms") any = point->take("step_ms", *value) || any;
      if (starts_with(parts[at + 1], "tok")) any = point->take("tok_s", *value) || any;
      ++at;
      continue;
    }
    const std::string name(word == "length" ? "acceptance_length" : word);
    std::vector<double> values;
    const bool known = !canonical_metric(name).name.empty() || !canonical_metric(name + "_0").name.empty();
    while (known && at + 1 < parts.size()) {
      std::string_view text = parts[at + 1];
      if (!text.empty() && text.back() == '|') text.remove_suffix(1);
      const auto value = number(text);
      const bool unit_follows = at + 2 < parts.size() && starts_with(parts[at + 2], "tok");
      if (!value || unit_follows) break;
      values.push_back(*value);
      ++at;
    }
    for (std::size_t k = 0; k < values.size(); ++k)
      any = point->take(values.size() == 1 && name != "full_acc" ? name : name + "_" + std::to_string(k),
                        values[k]) ||
            any;
    ++at;
  }
  return any;
}

void take_json_value(const std::string& name, const Json& value, LogPoint* point) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (value.is_number()) point->take(name, value.get<double>());
  if (value.is_string())
    if (const auto parsed = number(value.get<std::string>())) point->take(name, *parsed);
  // A loss that is null was not finite; other numbers that are null were not measured.
  if (value.is_null() && (name == "loss" || name == "total_loss")) point->take(name, kNan);
  if (name == "device_seconds" && value.is_object())
    for (const auto& [op, seconds] : value.items())
      if (seconds.is_number()) point->take(device_time_metric(op), seconds.get<double>());
  if (!value.is_array() || value.size() > 64) return;
  for (std::size_t k = 0; k < value.size(); ++k) {
    const bool lost = value[k].is_null() && name == "loss";
    if (value[k].is_number() || lost)
      point->take(name + "_" + std::to_string(k), lost ? kNan : value[k].get<double>());
  }
}

}  // namespace

bool LogPoint::take(std::string_view printed_name, double value) {
  const MetricName metric = canonical_metric(printed_name);
  if (metric.name.empty()) return false;
  if (metric.name == "step") {
    if (!(value >= 0 && value < 9e15)) return false;
    step = static_cast<std::int64_t>(value);
    return true;
  }
  if (metric.name == "epoch") {
    epoch = value;
    return true;
  }
  metrics.emplace_back(metric.name, value * metric.scale);
  return true;
}

bool LogPoint::has(std::string_view name) const {
  for (const auto& [known, value] : metrics)
    if (known == name) return true;
  return false;
}

std::optional<LogPoint> find_record(std::string_view line) {
  LogPoint point;
  const bool any = take_dict(line, &point) || take_step_line(line, &point);
  if (!any || point.metrics.empty())
    take_pairs(line, &point);
  else if (!point.step)
    take_step_line(line.substr(0, line.find('{')), &point);
  if (point.metrics.empty()) return std::nullopt;
  // "step 50: {...}" and "[step 20] loss_0=...": the step stands in front.
  const auto parts = words(line);
  for (std::size_t at = 0; !point.step && at + 1 < parts.size() && at < 3; ++at) {
    std::string word = lower(parts[at]);
    if (!word.empty() && word.front() == '[') word.erase(0, 1);
    std::size_t next = at + 1;
    if (word == "step") take_step_words(parts, &next, &point);
  }
  return point;
}

std::optional<LogPoint> json_record(std::string_view line, std::string* event, std::string* message,
                                    double* time) {
  if (line.size() < 2 || line.front() != '{' || line.back() != '}') return std::nullopt;
  const auto json = parse_json(line);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  LogPoint point;
  for (const auto& [name, value] : json->items()) {
    if (name == "event" || name == "ev") {
      if (value.is_string()) *event = value.get<std::string>();
    } else if (name == "message" || name == "phase") {
      if (value.is_string()) *message = value.get<std::string>();
    } else if (name == "t") {
      if (value.is_number()) *time = value.get<double>();
    } else {
      take_json_value(name, value, &point);
    }
  }
  return point;
}

std::optional<LogPoint> server_record(std::string_view line) {
  LogPoint point;
  const auto read = [&](const char* words_before, const char* name, double scale) {
    const std::size_t at = line.find(words_before);
    if (at == std::string_view::npos) return;
    std::string_view rest;
    const auto value = leading_number(trim(line.substr(at + std::string_view(words_before).size())), &rest);
    if (value) point.metrics.emplace_back(name, *value * scale);
  };
  read("Avg generation throughput:", "server_tokens_per_second", 1);
  if (point.metrics.empty()) return std::nullopt;
  read("Avg prompt throughput:", "server_prompt_tokens_per_second", 1);
  read("Running:", "server_running_requests", 1);
  read("Waiting:", "server_waiting_requests", 1);
  read("KV cache usage:", "server_kv_cache_share", 0.01);
  point.server = true;
  return point;
}

}  // namespace eaglet::monitor
