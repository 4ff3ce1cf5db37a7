#include "monitor/written_config.h"

#include "base/files.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {

Json simple_yaml(const std::string& text) {
  Json json = Json::object();
  for (const std::string_view line : split(text, '\n')) {
    const std::string_view body = trim(line.substr(0, line.find(" #")));
    const std::size_t colon = body.find(": ");
    if (colon == std::string_view::npos || body.front() == '#' || body.front() == '-') continue;
    std::string_view value = trim(body.substr(colon + 2));
    if (value.size() >= 2 && (value.front() == '\'' || value.front() == '"'))
      value = value.substr(1, value.size() - 2);
    if (json.size() < 1000) json[std::string(body.substr(0, colon))] = std::string(value);
  }
  return json;
}

/// that.
std::string written_command(const std::string& path) {
  const auto bytes = file_bytes(path);
  if (!bytes.ok() || *bytes > (1u << 20)) return {};
  const auto text = read_file(path);
  std::string command;
  if (!text.ok()) return command;
  for (std::string_view line : split(*text, '\n')) {
    line = trim(line);
    if (line.empty() || line.front() == '#') continue;
    if (line.back() == '\\') line.remove_suffix(1);
    command += std::string(line) + " ";
  }
  return command;
}

}  // namespace eaglet::monitor
