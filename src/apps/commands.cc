#include "apps/commands.h"

namespace eaglet::apps {

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all = {
      // In the order of a run: one line a command.
  };
  return all;
}

}  // namespace eaglet::apps
