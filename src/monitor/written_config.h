#pragma once

#include <string>

#include "formats/json.h"

namespace eaglet::monitor {

/// "key: value" lines of a flat or once nested YAML file, as speculators' run.yaml is.
Json simple_yaml(const std::string& text);
/// What was typed, by speculators' train_command.txt, without the comments above it; "" when there is none.
std::string written_command(const std::string& path);

}  // namespace eaglet::monitor
