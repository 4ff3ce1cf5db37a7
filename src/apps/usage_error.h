#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"

namespace eaglet::apps {

/// A parse error in our words (kUsage): what is wrong on the command line, the name that was probably meant,
/// where the help is.
Status usage_error(const CLI::App& app, const CLI::ParseError& error);

/// kUsage for a command that does not exist, with the nearest one that does.
Status unknown_command(const CLI::App& app, const std::string& word);

/// kUsage for flags that do not go together.
Status flags_error(std::string what, std::string todo);

}  // namespace eaglet::apps
