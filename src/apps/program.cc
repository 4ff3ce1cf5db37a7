#include "apps/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "apps/completion.h"
#include "apps/console.h"
#include "apps/exit_code.h"
#include "apps/help.h"
#include "apps/pager.h"
#include "apps/terminal.h"
#include "apps/usage_error.h"
#include "apps/waiting_threads.h"
#include "base/files.h"

namespace eaglet::apps {
namespace {

std::string fact(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

struct CommonFlags {
  bool json = false, version = false;
  std::string progress = "auto", color = "auto", shell;
};

/// The whole command line: common flags, every command with its flags, and `help`.
class CommandLine {
 public:
  explicit CommandLine(const Program& program) : program_(program), app_(program.summary, "eaglet") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.option_defaults()->always_capture_default();
    app_.option_defaults()->multi_option_policy(
        CLI::MultiOptionPolicy::TakeLast);  // given twice, the last one holds
    app_.footer(program.examples);
    app_.add_flag("--json", flags.json, "results as one JSON document on stdout");
    app_.add_option("--progress", flags.progress,
                    "how progress is shown on stderr: auto, tty, plain, json, none")
        ->envname("EAGLET_PROGRESS")
        ->check(CLI::IsMember({"auto", "tty", "plain", "json", "none"}).description(""))
        ->type_name("HOW");
    app_.add_option("--color", flags.color, "auto, always, never; NO_COLOR and CLICOLOR_FORCE are heeded")
        ->check(CLI::IsMember({"auto", "always", "never"}).description(""))
        ->type_name("WHEN");
    app_.add_flag("--version", flags.version, "version, revision, build facts and libraries");
    app_.fallthrough();  // so that common flags may stand behind the command too
    for (const CommandEntry& entry : program_.commands) {
      CLI::App* command = app_.add_subcommand(entry.name, entry.summary);
      runs_[command] = entry.add(*command);
      if (!entry.computes) lookers_.insert(command);
    }
    CLI::App* completion =
        app_.add_subcommand("completion", "a script by which Tab completes commands and options");
    completion->footer(
        "  eaglet completion bash > ~/.local/share/bash-completion/completions/eaglet\n"
        "  eaglet completion fish > ~/.config/fish/completions/eaglet.fish");
    completion->add_option("shell", flags.shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
    app_.add_subcommand("help", "the help of a command");  // for the list; parse() turns it into --help
  }

  /// kOk: parsed. Asked-for help comes back as text in *help; a whole page of it is `long_help()`.
  Status parse(int argc, char** argv, std::string* help) {
    std::vector<std::string> words(argv + 1, argv + argc);
    EAGLET_RETURN_IF_ERROR(turn_help_into_flag(&words));
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    try {
      app_.parse(words);
    } catch (const CLI::CallForHelp&) {
      const auto chosen = app_.get_subcommands();
      *help = chosen.empty() ? app_.help() : chosen.front()->help();
      long_help_ = true;
      return {};
    } catch (const CLI::ParseError& error) {
      return usage_error(app_, error);
    }
    const auto chosen = app_.get_subcommands();
    if (flags.version) return {};
    if (chosen.empty()) {
      *help = short_help(app_);
    } else if (chosen.front()->get_name() == "completion") {
      *help = completion_script(app_, flags.shell);
    } else {
      run_ = &runs_.at(chosen.front());
      computes_ = lookers_.count(chosen.front()) == 0;
    }
    return {};
  }

  Status run(Context& context) const { return (*run_)(context); }

  bool computes() const { return computes_; }
  bool long_help() const { return long_help_; }

  CommonFlags flags;

 private:
  /// `help X` means `X --help`; common flags may stand before it.
  Status turn_help_into_flag(std::vector<std::string>* words) const {
    std::size_t at = 0;
    while (at < words->size() && (*words)[at].rfind("--", 0) == 0)
      at += (*words)[at] == "--progress" || (*words)[at] == "--color" ? 2 : 1;
    if (at >= words->size() || (*words)[at] != "help") return {};
    const std::string topic = at + 1 < words->size() ? (*words)[at + 1] : std::string();
    words->resize(at);
    if (topic.empty()) {
      words->push_back("--help");
      return {};
    }
    bool known = topic == "completion";
    for (const CommandEntry& entry : program_.commands) known = known || topic == entry.name;
    if (!known) return unknown_command(app_, topic);
    words->insert(words->end(), {topic, "--help"});
    return {};
  }

  const Program& program_;
  CLI::App app_;
  std::map<const CLI::App*, Run> runs_;
  std::set<const CLI::App*> lookers_;
  const Run* run_ = nullptr;
  bool computes_ = true, long_help_ = false;
};

ColorMode color_mode(const std::string& text) {
  if (text == "always") return ColorMode::kAlways;
  return text == "never" ? ColorMode::kNever : ColorMode::kAuto;
}

/// Whatever a command lets escape is our own bug, except running out of memory.
Status run_guarded(const CommandLine& line, Context& context) {
  try {
    return line.run(context);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kNoSpace, "out of memory", {},
                  "use a smaller batch (--max-seq-len, --parallel) or a larger machine");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, std::string("unexpected failure: ") + error.what(), {},
                  "this is a bug in eaglet: please report the command and this line");
  }
}

void print_error(const Status& status, const CommonFlags& flags) {
  std::string text = status.message();
  const std::string word = "error:";
  if (text.rfind(word, 0) == 0)
    text = toned(word, Tone::kBad, use_color(color_mode(flags.color), fileno(stderr))) +
           text.substr(word.size());
  write_whole(fileno(stderr), text + "\n");
}

/// Results that did not reach stdout are a failure too; a reader that went away (`| head`) is not worth a
/// word.
int finish_stdout(int code, const CommonFlags& flags) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (errno == EPIPE) return 128 + SIGPIPE;
  const Status status = errno_status("write", "standard output", errno != 0 ? errno : EIO);
  print_error(status, flags);
  return code != 0 ? code : exit_code(status);
}

}  // namespace

int run_program(int argc, char** argv, const Program& program) {
  CommandLine line(program);
  std::string help;
  if (const Status status = line.parse(argc, argv, &help); !status.ok()) {
    print_error(status, line.flags);
    return exit_code(status);
  }
  if (line.flags.version)
    help = line.flags.json ? program.facts().dump(2) + "\n" : version_text(program.facts());
  if (!help.empty()) {
    if (line.long_help() && is_live_terminal(STDOUT_FILENO))
      show_text(help);
    else
      std::fputs(help.c_str(), stdout);
    return finish_stdout(0, line.flags);
  }
  if (line.computes()) let_waiting_threads_sleep(argv);
  const bool color = use_color(color_mode(line.flags.color), fileno(stderr));
  const ProgressMode mode = parse_progress_mode(line.flags.progress).value_or(ProgressMode::kAuto);
  auto progress = make_console_progress(mode, fileno(stderr), color);
  Context context;
  context.progress = progress.get();
  context.json = line.flags.json;
  context.color = use_color(color_mode(line.flags.color), fileno(stdout));
  context.program = argv[0];
  context.how_it_talks = {"--progress", line.flags.progress, "--color", line.flags.color};
  const Status status = run_guarded(line, context);
  progress.reset();  // the live line is gone before anything else is said
  if (!status.ok()) print_error(status, line.flags);
  return finish_stdout(status.ok() ? context.verdict : exit_code(status), line.flags);
}

std::string version_text(const Json& facts) {
  std::string out = fmt::format("eaglet {} ({}, {}, {})\n", fact(facts["version"]), fact(facts["revision"]),
                                fact(facts["build_type"]), fact(facts["compiler"]));
  for (const auto& [name, version] : facts["libraries"].items())
    out += fmt::format("  {:<14} {}\n", name, fact(version));
  return out;
}

}  // namespace eaglet::apps
