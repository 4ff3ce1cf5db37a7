#include "base/memory_amount.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace eaglet {

Result<std::uint64_t> parse_memory(const std::string& text) {
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(static_cast<const char*>(parsed.ptr), text.data() + text.size());
  double scale = 0;
  for (const auto& [name, bytes] : {std::pair{"", 1.0}, std::pair{"K", 1024.0}, std::pair{"M", 1048576.0},
                                    std::pair{"G", 1073741824.0}, std::pair{"T", 1099511627776.0}})
    if (unit == name) scale = bytes;
  if (parsed.ec != std::errc() || scale == 0 || !std::isfinite(number) || number <= 0 ||
      number * scale > 1e18)
    return Status(StatusCode::kUsage, "'" + text + "' is no amount of memory", "--memory",
                  "for example 4G or 800M");
  return static_cast<std::uint64_t>(number * scale);
}

}  // namespace eaglet
