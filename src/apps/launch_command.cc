#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "apps/command.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "formats/json.h"
#include "monitor/launch.h"

namespace eaglet::apps {
namespace {

/// "train-0304-093107": the program's name and the time.
std::string fresh_run_id(const std::vector<std::string>& command) {
  std::string name = std::filesystem::path(command.front()).stem().string();
  const std::string now = rfc3339_utc(wall_seconds());  // 2026-03-04T09:31:07Z
  return fmt::format("{}-{}{}-{}{}{}", name, now.substr(5, 2), now.substr(8, 2), now.substr(11, 2),
                     now.substr(14, 2), now.substr(17, 2));
}

void print_result(const monitor::LaunchOptions& options, const monitor::LaunchResult& result,
                  const Context& context) {
  if (context.json) {
    const Json json = {{"schema", 1},
                       {"run_id", options.run_id},
                       {"pid", result.pid},
                       {"log", result.log_path},
                       {"record", result.record_path},
                       {"ended", result.ended},
                       {"exit_code", result.ended ? Json(result.exit_code) : Json(nullptr)},
                       {"reason", result.reason}};
    write_whole(STDOUT_FILENO, json.dump(2) + "\n");
  } else if (result.ended) {
    write_whole(STDERR_FILENO,
                fmt::format("run {} ended: {}; log {}\n", options.run_id, result.reason, result.log_path));
  } else {
    write_whole(
        STDOUT_FILENO,
        fmt::format("run {}  pid {}\nlog     {}\nnext    eaglet wait {} --until first-step --for 20m\n",
                    options.run_id, result.pid, result.log_path, options.directory));
  }
}

Status run_launch(monitor::LaunchOptions options, Context& context) {
  if (options.run_id.empty()) options.run_id = fresh_run_id(options.command);
  if (options.directory.empty()) options.directory = "runs/" + options.run_id;
  EAGLET_ASSIGN_OR_RETURN(const monitor::LaunchResult result, monitor::launch_run(options));
  print_result(options, result, context);
  context.verdict = result.exit_code;
  return {};
}

}  // namespace

Run add_launch(CLI::App& app) {
  auto options = std::make_shared<monitor::LaunchOptions>();
  app.description(
      "Start any trainer so that it can be judged well: log with times, run id, pid file, exit reason.");
  app.footer(
      "  eaglet launch --name k25-a -- python train.py config.yaml    goes on when you log out\n"
      "  eaglet launch --wait -- torchrun train.py config.yaml        stays, and exits as the trainer does");
  app.add_option("--name", options->run_id,
                 "run id, in the environment as EAGLET_RUN_ID (default: the program and the time)");
  app.add_option("--dir", options->directory,
                 "where log.txt, launch.json and launch.pid go (default: runs/NAME)");
  app.add_flag("--wait", options->wait, "show the output and stay until it ends; exit with its code");
  app.add_option("command", options->command, "the program and its arguments, after --")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1, -1);
  return [options](Context& context) { return run_launch(*options, context); };
}

}  // namespace eaglet::apps
