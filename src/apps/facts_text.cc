#include "apps/facts_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace eaglet::apps {
namespace {

bool is_table(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}

/// "kv_heads" -> "kv heads"; a name of the file's own ("Q4_1") stays as it is.
std::string words(std::string key) {
  if (std::any_of(key.begin(), key.end(), [](unsigned char c) { return std::isupper(c); })) return key;
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string shown(const Json& value) {
  if (value.is_string()) return value == "" ? "-" : value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_null()) return "-";
  if (value.is_array()) {  // not a table
    std::string list;
    for (const Json& item : value) list += (list.empty() ? "" : ", ") + shown(item);
    return "[" + list + "]";
  }
  if (value.is_object()) {
    std::string list;
    for (const auto& [key, item] : value.items())
      list += (list.empty() ? "" : ", ") + words(key) + " " + shown(item);
    return list;
  }
  return json_line(value);
}

/// Strings to the left, numbers to the right.
std::string cell(const std::string& text, std::size_t width, bool number) {
  return number ? fmt::format("  {:>{}}", text, width) : fmt::format("  {:<{}}", text, width);
}

std::string table_text(const std::string& name, const Json& table, std::size_t most_rows) {
  std::vector<std::string> columns;
  for (const auto& [key, value] : table.front().items()) columns.push_back(key);
  const std::size_t rows = std::min(most_rows, table.size());
  std::vector<std::size_t> widths;
  for (const std::string& column : columns) {
    std::size_t width = words(column).size();
    for (std::size_t row = 0; row < rows; ++row)
      width = std::max(width, shown(table[row].value(column, Json())).size());
    widths.push_back(width);
  }
  std::string text = "\n" + words(name) + fmt::format(" ({})\n", table.size());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    text += cell(words(columns[c]), widths[c], table.front()[columns[c]].is_number());
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += "\n";
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const Json value = table[row].value(columns[c], Json());
      text += cell(shown(value), widths[c], value.is_number());
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  if (rows < table.size()) text += fmt::format("  ... and {} more (--all)\n", table.size() - rows);
  return text;
}

}  // namespace

std::string facts_text(const Json& facts, std::size_t most_rows) {
  std::size_t width = 0;
  for (const auto& [key, value] : facts.items())
    if (!is_table(value)) width = std::max(width, key.size());
  std::string text;
  for (const auto& [key, value] : facts.items())
    if (!is_table(value)) text += fmt::format("{:<{}}  {}\n", words(key), width, shown(value));
  for (const auto& [key, value] : facts.items())
    if (is_table(value)) text += table_text(key, value, most_rows);
  return text;
}

}  // namespace eaglet::apps
