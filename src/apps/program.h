#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "formats/json.h"

namespace eaglet::apps {

/// What one of our programs is: the whole of eaglet, or only what looks at runs.
struct Program {
  std::string summary, examples;
  std::vector<CommandEntry> commands;
  std::function<Json()> facts;  // for --version: version, revision, build_type, compiler, libraries
};

/// Parses the command line, runs one command, prints what failed; the exit code of the process.
int run_program(int argc, char** argv, const Program& program);

/// The facts as `--version` prints them.
std::string version_text(const Json& facts);

}  // namespace eaglet::apps
