#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace eaglet::apps {

/// How every help page looks: what it does, examples (the command's footer), usage, arguments, options, and
/// for the program the commands in the order of a run. Lines stay within 100 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

/// What `eaglet` says when it is called with nothing: one sentence, three examples, the commands.
std::string short_help(const CLI::App& app);

}  // namespace eaglet::apps
