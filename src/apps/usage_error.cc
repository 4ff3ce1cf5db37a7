#include "apps/usage_error.h"

#include <string>
#include <utility>
#include <vector>

#include "apps/suggest.h"

namespace eaglet::apps {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

Status unknown_flag(const CLI::App& app, const CLI::App* command, const std::string& word) {
  std::vector<std::string> known = flag_names(app);
  const std::string help = command == nullptr ? "eaglet --help" : "eaglet " + command->get_name() + " --help";
  if (command != nullptr)
    for (const std::string& name : flag_names(*command)) known.push_back(name);
  const std::string nearest = nearest_name(word.substr(0, word.find('=')), known);
  return Status(StatusCode::kUsage, "unknown option " + word, {},
                nearest.empty() ? help : "did you mean " + nearest + "? all options: " + help);
}

}  // namespace

Status unknown_command(const CLI::App& app, const std::string& word) {
  const std::string nearest = nearest_name(word, command_names(app));
  return Status(
      StatusCode::kUsage, "unknown command '" + word + "'", {},
      nearest.empty() ? "eaglet --help lists the commands" : "did you mean 'eaglet " + nearest + "'?");
}

Status usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App* command = chosen.empty() ? nullptr : chosen.front();
  // A mistyped flag often also makes a required one look missing, so what is left over is told first.
  for (const std::string& word : app.remaining(true)) {
    if (word == "--") continue;
    if (word.size() > 1 && word.front() == '-') return unknown_flag(app, command, word);
    if (command == nullptr) return unknown_command(app, word);
    return Status(StatusCode::kUsage, "unexpected argument '" + word + "'", {},
                  "eaglet " + command->get_name() + " --help");
  }
  return Status(StatusCode::kUsage, error.what(), {},
                command == nullptr ? "eaglet --help" : "eaglet " + command->get_name() + " --help");
}

Status flags_error(std::string what, std::string todo) {
  return Status(StatusCode::kUsage, std::move(what), {}, std::move(todo));
}

}  // namespace eaglet::apps
