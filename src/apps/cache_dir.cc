#include "apps/cache_dir.h"

#include <cstdlib>

namespace eaglet::apps {

std::string cache_dir() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string own = variable("EAGLET_CACHE_DIR"); !own.empty()) return own;
  if (const std::string all = variable("XDG_CACHE_HOME"); !all.empty()) return all + "/eaglet";
  const std::string home = variable("HOME");
  return (home.empty() ? std::string() : home + "/") + ".cache/eaglet";
}

}  // namespace eaglet::apps
