#include "apps/completion.h"

#include <vector>

namespace eaglet::apps {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// "--model --output-dir ...": long names only, they say what they are.
std::string options_of(const CLI::App& app) {
  std::string all;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) all += (all.empty() ? "--" : " --") + name;
  return all;
}

std::string names_of(const CLI::App& app) {
  std::string all;
  for (const CLI::App* command : commands_of(app)) all += (all.empty() ? "" : " ") + command->get_name();
  return all;
}

std::string bash_script(const CLI::App& app) {
  const std::string name = app.get_name(), common = options_of(app), commands = names_of(app);
  std::string out = "# " + name + " completion bash > ~/.local/share/bash-completion/completions/" + name +
                    "\n_" + name +
                    "() {\n  local word=\"${COMP_WORDS[COMP_CWORD]}\" command=\"\" words i\n"
                    "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
                    "    case \" " +
                    commands +
                    " \" in *\" ${COMP_WORDS[i]} \"*) command=\"${COMP_WORDS[i]}\"; break ;; esac\n"
                    "  done\n  case \"$command\" in\n";
  out += "    \"\") words=\"" + commands + " " + common + "\" ;;\n";
  for (const CLI::App* command : commands_of(app)) {
    const bool help = command->get_name() == "help";
    out += "    " + command->get_name() + ") words=\"" +
           (help ? commands : options_of(*command) + " " + common) + "\" ;;\n";
  }
  out +=
      "  esac\n  # What is no option may be a file: the shell completes those itself.\n"
      "  if [[ \"$word\" == -* || -z \"$command\" || \"$command\" == help ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n  fi\n}\n"
      "complete -o default -F _" +
      name + " " + name + "\n";
  return out;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' ? std::string("\\'") : c == '\\' ? std::string("\\\\") : std::string(1, c);
  return out + "'";
}

std::string fish_script(const CLI::App& app) {
  const std::string name = app.get_name();
  std::string out = "# " + name + " completion fish > ~/.config/fish/completions/" + name + ".fish\n";
  const auto options = [&](const CLI::App& of, const std::string& condition) {
    for (const CLI::Option* option : of.get_options())
      for (const std::string& long_name : option->get_lnames())
        out += "complete -c " + name + condition + " -l " + long_name +
               (option->get_type_size() == 0 ? "" : " -r") + " -d " + quoted(option->get_description()) +
               "\n";
  };
  options(app, "");
  for (const CLI::App* command : commands_of(app))
    out += "complete -c " + name + " -n __fish_use_subcommand -f -a " + command->get_name() + " -d " +
           quoted(command->get_description()) + "\n";
  for (const CLI::App* command : commands_of(app))
    options(*command, " -n '__fish_seen_subcommand_from " + command->get_name() + "'");
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") return fish_script(app);
  if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + bash_script(app);
  return bash_script(app);
}

}  // namespace eaglet::apps
