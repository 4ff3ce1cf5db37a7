#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace eaglet::apps {

/// Where a setting's value is kept.
using SettingTarget =
    std::variant<std::string*, bool*, std::int64_t*, int*, std::uint64_t*, double*,
                 std::vector<std::int32_t>*, std::vector<std::int64_t>*, std::vector<std::string>*>;

/// One setting of a command: `key` in a recipe, `--key` with dashes on its command line.
struct Setting {
  std::string key;
  SettingTarget target;
  std::string help;
  bool is_input_path = false;  // in a recipe file: relative to that file
};

/// A flag for each; a switch also gets its opposite, --no-key.
void add_flags(CLI::App& app, const std::vector<Setting>& settings);

/// The command line that gives add_flags' flags these values. An empty text or list is left out: no flag
/// takes one.
std::vector<std::string> flag_words(const std::vector<Setting>& settings);

}  // namespace eaglet::apps
