#include "monitor/text_scan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace eaglet::monitor {
namespace {

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front())
    return text.substr(1, text.size() - 2);
  return text;
}

/// Days since 1970 of a civil date (Howard Hinnant, "chrono-compatible low-level date algorithms").
std::int64_t days_of(std::int64_t year, int month, int day) {
  year -= month <= 2;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t of_era = year - era * 400;
  const int day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719468;
}

/// Reads `count` digits at *at.
bool digits(std::string_view text, std::size_t* at, int count, int* value) {
  *value = 0;
  for (int i = 0; i < count; ++i, ++*at) {
    if (*at >= text.size() || !is_digit(text[*at])) return false;
    *value = *value * 10 + (text[*at] - '0');
  }
  return true;
}

bool letter(std::string_view text, std::size_t* at, std::string_view allowed) {
  if (*at >= text.size() || allowed.find(text[*at]) == std::string_view::npos) return false;
  ++*at;
  return true;
}

double fraction(std::string_view text, std::size_t* at) {
  if (*at + 1 >= text.size() || (text[*at] != '.' && text[*at] != ',') || !is_digit(text[*at + 1])) return 0;
  double value = 0, scale = 0.1;
  for (++*at; *at < text.size() && is_digit(text[*at]); ++*at, scale /= 10)
    value += scale * (text[*at] - '0');
  return value;
}

/// "Z", "+01:00", "-0530" or nothing: seconds to take away.
double zone_seconds(std::string_view text, std::size_t* at) {
  if (*at < text.size() && text[*at] == 'Z') {
    ++*at;
    return 0;
  }
  std::size_t look = *at;
  if (!letter(text, &look, "+-")) return 0;
  const double sign = text[look - 1] == '-' ? -1 : 1;
  int hours = 0, minutes = 0;
  if (!digits(text, &look, 2, &hours)) return 0;
  if (look < text.size() && text[look] == ':') ++look;
  if (!digits(text, &look, 2, &minutes)) return 0;
  *at = look;
  return sign * (hours * 3600 + minutes * 60);
}

}  // namespace

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool contains_any(std::string_view text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return contains(text, part); });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t at = 0;
  while (at < text.size()) {
    while (at < text.size() && is_blank(text[at])) ++at;
    std::size_t end = at;
    while (end < text.size() && !is_blank(text[end])) ++end;
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t at = 0;
  while (true) {
    const std::size_t end = text.find(separator, at);
    parts.push_back(text.substr(at, end == std::string_view::npos ? end : end - at));
    if (end == std::string_view::npos) return parts;
    at = end + 1;
  }
}

std::optional<double> leading_number(std::string_view text, std::string_view* rest) {
  const bool signed_plus = !text.empty() && text.front() == '+';
  const std::string_view body = signed_plus ? text.substr(1) : text;
  if (body.empty()) return std::nullopt;
  const char first = body[body.front() == '-' ? (body.size() > 1 ? 1 : 0) : 0];
  const bool word = first == 'n' || first == 'N' || first == 'i' || first == 'I';
  if (!is_digit(first) && first != '.' && !word) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), value);
  if (error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    value = body.front() == '-' ? -std::numeric_limits<double>::infinity()
                                : std::numeric_limits<double>::infinity();
  *rest = body.substr(static_cast<std::size_t>(end - body.data()));
  return value;
}

std::optional<double> number(std::string_view text) {
  text = trim(unquoted(trim(text)));
  std::string_view rest;
  if (const auto value = leading_number(text, &rest); value && rest.empty()) return value;
  if (const auto whole = whole_number(text)) return static_cast<double>(*whole);
  return std::nullopt;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (c == ',' || c == '_') continue;
    if (!is_digit(c) || value > (std::numeric_limits<std::int64_t>::max() - 9) / 10) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == 0x1b && i + 1 < text.size() && text[i + 1] == '[') {  // CSI: ends with a byte of 0x40..0x7e
      for (i += 2; i < text.size() && (text[i] < 0x40 || text[i] > 0x7e); ++i) {
      }
    } else if (c == 0x1b && i + 1 < text.size() &&
               text[i + 1] == ']') {  // OSC: ends with BEL or ESC backslash
      for (i += 2; i < text.size() && text[i] != '\a' && text[i] != '\\'; ++i) {
      }
    } else if (c == 0x1b) {
      ++i;
    } else if (c == '\t' || c >= 0x20) {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::size_t columns(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

std::optional<double> iso_time(std::string_view text, std::string_view* rest) {
  std::size_t at = 0;
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  const bool date = digits(text, &at, 4, &year) && letter(text, &at, "-/") && digits(text, &at, 2, &month) &&
                    letter(text, &at, "-/") && digits(text, &at, 2, &day) && letter(text, &at, "T _");
  const bool time = date && digits(text, &at, 2, &hour) && letter(text, &at, ":") &&
                    digits(text, &at, 2, &minute) && letter(text, &at, ":") && digits(text, &at, 2, &second);
  if (!time || month < 1 || month > 12 || day < 1 || day > 31 || hour > 24 || minute > 59 || second > 60)
    return std::nullopt;
  double value = static_cast<double>(days_of(year, month, day)) * 86400 + hour * 3600 + minute * 60 + second;
  value += fraction(text, &at);
  value -= zone_seconds(text, &at);
  if (rest != nullptr) *rest = text.substr(at);
  return value;
}

std::optional<double> clock_duration(std::string_view text) {
  text = trim(text);
  double days = 0;
  if (const std::size_t dash = text.find('-'); dash != std::string_view::npos && dash > 0) {
    const auto value = whole_number(text.substr(0, dash));
    if (!value) return std::nullopt;
    days = static_cast<double>(*value);
    text.remove_prefix(dash + 1);
  }
  double seconds = 0;
  const auto parts = split(text, ':');
  if (parts.size() > 3) return std::nullopt;
  for (const std::string_view part : parts) {
    std::string_view rest;
    const auto value = leading_number(part, &rest);
    if (!value || !rest.empty() || !std::isfinite(*value) || *value < 0) return std::nullopt;
    seconds = seconds * 60 + *value;
  }
  return days * 86400 + seconds;
}

std::optional<double> mebibytes_text(std::string_view text) {
  std::string_view rest;
  const auto value = leading_number(trim(text), &rest);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  const std::string unit = lower(trim(rest));
  constexpr double kKi = 1024;
  if (unit.empty() || unit == "mib") return *value * kKi * kKi;
  if (unit == "gib") return *value * kKi * kKi * kKi;
  if (unit == "kib") return *value * kKi;
  if (unit == "tib") return *value * kKi * kKi * kKi * kKi;
  if (unit == "b" || unit == "bytes") return *value;
  if (unit == "kb") return *value * 1e3;
  if (unit == "mb") return *value * 1e6;
  if (unit == "gb") return *value * 1e9;
  return std::nullopt;
}

}  // namespace eaglet::monitor
