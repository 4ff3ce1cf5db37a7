#include "apps/commands.h"

namespace eaglet::apps {

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all = {
      // In the order of a run: one line a command.
      {"inspect", "say what a file is, and check it", add_inspect},
      {"bench", "measure speed on this machine, as a share of what it could do", add_bench},
  };
  return all;
}

}  // namespace eaglet::apps
