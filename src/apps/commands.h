#pragma once

#include <vector>

#include "apps/command.h"

namespace eaglet::apps {

/// One line of `eaglet --help`; `add` is declared in apps/command.h.
struct CommandEntry {
  const char* name;
  const char* summary;
  Run (*add)(CLI::App&);
  bool computes = true;  // false: it only looks, so OpenMP's settings do not concern it
};

const std::vector<CommandEntry>& commands();

}  // namespace eaglet::apps
