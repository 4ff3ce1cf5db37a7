#include "client/metrics_text.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace eaglet {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

void skip_spaces(std::string_view* text) {
  while (!text->empty() && (text->front() == ' ' || text->front() == '\t')) text->remove_prefix(1);
}

std::string take_name(std::string_view* text) {
  std::size_t length = 0;
  while (length < text->size() && is_name_char((*text)[length])) ++length;
  std::string name(text->substr(0, length));
  text->remove_prefix(length);
  return name;
}

/// "...": with \\, \" and \n written out.
bool take_quoted(std::string_view* text, std::string* value) {
  if (text->empty() || text->front() != '"') return false;
  text->remove_prefix(1);
  while (!text->empty() && text->front() != '"') {
    char c = text->front();
    text->remove_prefix(1);
    if (c == '\\') {
      if (text->empty()) return false;
      c = text->front() == 'n' ? '\n' : text->front();
      text->remove_prefix(1);
    }
    value->push_back(c);
  }
  if (text->empty()) return false;
  text->remove_prefix(1);
  return true;
}

bool take_labels(std::string_view* text, std::map<std::string, std::string>* labels) {
  text->remove_prefix(1);  // the brace
  for (;;) {
    skip_spaces(text);
    if (!text->empty() && text->front() == '}') {
      text->remove_prefix(1);
      return true;
    }
    const std::string name = take_name(text);
    if (name.empty() || text->empty() || text->front() != '=') return false;
    text->remove_prefix(1);
    std::string value;
    if (!take_quoted(text, &value)) return false;
    (*labels)[name] = std::move(value);
    skip_spaces(text);
    if (!text->empty() && text->front() == ',') text->remove_prefix(1);
  }
}

bool take_number(std::string_view text, double* value) {
  skip_spaces(&text);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc()) return false;
  return end == text.data() + text.size() || *end == ' ' || *end == '\t' || *end == '\r';
}

}  // namespace

std::vector<MetricSample> parse_metrics(std::string_view text) {
  std::vector<MetricSample> samples;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    skip_spaces(&line);
    MetricSample sample;
    sample.name = take_name(&line);
    if (sample.name.empty()) continue;
    if (!line.empty() && line.front() == '{' && !take_labels(&line, &sample.labels)) continue;
    if (!take_number(line, &sample.value)) continue;
    samples.push_back(std::move(sample));
  }
  return samples;
}

double metric_sum(const std::vector<MetricSample>& samples, std::string_view name, double fallback) {
  double sum = 0;
  bool found = false;
  for (const MetricSample& sample : samples) {
    if (sample.name != name || !std::isfinite(sample.value)) continue;
    sum += sample.value;
    found = true;
  }
  return found ? sum : fallback;
}

}  // namespace eaglet
