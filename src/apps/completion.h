#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace eaglet::apps {

/// A script by which a shell completes our commands and their options on Tab; file names elsewhere. `shell`:
/// bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace eaglet::apps
