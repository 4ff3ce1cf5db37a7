#include "apps/help.h"

#include <sstream>

namespace eaglet::apps {
namespace {

constexpr std::size_t kNameColumns = 34;  // where descriptions begin
constexpr std::size_t kColumns = 100;

/// `name` on the left, `text` wrapped on the right.
std::string entry(const std::string& name, const std::string& text) {
  std::string out = "  " + name;
  std::size_t column = out.size();
  const auto new_line = [&] {
    out += "\n" + std::string(kNameColumns, ' ');
    column = kNameColumns;
  };
  if (column + 2 > kNameColumns) {
    new_line();
  } else {
    out += std::string(kNameColumns - column, ' ');
    column = kNameColumns;
  }
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    if (column > kNameColumns && column + 1 + word.size() > kColumns) new_line();
    if (column > kNameColumns) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string examples_of(const CLI::App& app) {
  const std::string footer = app.get_footer();
  if (footer.empty()) return {};
  const std::string title = footer.rfind("Example", 0) == 0 ? "" : "Examples:\n";
  return "\n" + title + footer + (footer.back() == '\n' ? "" : "\n");
}

// "plan train": its own name behind those of the commands it belongs to.
std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  const bool below_another = parent != nullptr && parent->get_parent() != nullptr;
  return below_another ? full_name(*parent) + " " + app.get_name() : app.get_name();
}

std::string command_list_of(const CLI::App& app) {
  std::string out;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    out += entry(command->get_name(), command->get_description());
  return out.empty() ? out : "\nCommands, in the order of a run:\n" + out;
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  const bool is_command = app->get_parent() != nullptr;
  std::string out = (is_command ? "eaglet " + full_name(*app) + ": " : "") + app->get_description() + "\n";
  out += examples_of(*app);
  if (is_command && name.rfind("eaglet", 0) != 0) name = "eaglet " + full_name(*app);
  out += "\n" + make_usage(app, name);
  out += make_positionals(app);
  out += make_groups(app, mode);
  out += command_list_of(*app);
  out += is_command ? "\nOptions of every command (--json, --progress, --color): eaglet --help\n"
                    : "\nMore: eaglet help COMMAND; exit codes, file formats and the maths are in docs/.\n";
  return out;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = make_option_name(option, is_positional);
  const std::string type = option->get_type_size() != 0 ? option->get_type_name() : "";
  if (!is_positional && !type.empty()) name += " " + type;
  std::string text = option->get_description();
  if (const std::string standard = option->get_default_str();
      !standard.empty() && standard != "[]" && standard != "\"\"")
    text += " (default: " + standard + ")";
  if (option->get_required()) text += " (required)";
  if (!option->get_envname().empty()) text += " (variable " + option->get_envname() + ")";
  return entry(name, text);
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return entry(command->get_name(), command->get_description());
}

std::string short_help(const CLI::App& app) {
  return app.get_description() + "\n" + examples_of(app) + command_list_of(app) +
         "\nAll options: eaglet --help\n";
}

}  // namespace eaglet::apps
