#include "apps/commands.h"

namespace eaglet::apps {

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> all = {
      // In the order of a run: one line a command.
      {"export", "writes a draft for llama.cpp or vLLM", add_export},
      {"import", "takes in a draft that another tool wrote", add_import},
  };
  return all;
}

}  // namespace eaglet::apps
