#include "monitor/listening.h"

#include <fmt/format.h>

#include <cstdlib>

#include "monitor/text_scan.h"

namespace eaglet::monitor {

std::map<std::string, Listener> listening_sockets(const ProcReader& reader) {
  constexpr std::string_view kListen = "0A";
  std::map<std::string, Listener> found;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    const std::string text = read_small(reader.roots().proc + table);
    for (const std::string_view line : split(text, '\n')) {
      const auto parts = words(line);
      if (parts.size() < 10 || parts[3] != kListen) continue;
      const std::size_t colon = parts[1].rfind(':');
      if (colon == std::string_view::npos) continue;
      Listener listener;
      listener.port =
          static_cast<int>(std::strtol(std::string(parts[1].substr(colon + 1)).c_str(), nullptr, 16));
      listener.user = whole_number(parts[7]).value_or(-1);
      found[fmt::format("socket:[{}]", parts[9])] = listener;
    }
  }
  return found;
}

}  // namespace eaglet::monitor
