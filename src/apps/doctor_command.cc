#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "apps/command.h"
#include "apps/terminal.h"
#include "apps/watch_options.h"
#include "monitor/saved_views.h"

namespace eaglet::apps {
namespace {

struct DoctorFlags {
  WatchOptions watch;
  std::string target;
  std::vector<std::string> snapshots;
  bool nagios = false, all = false;
};

void print_verdict(const DoctorFlags& flags, const monitor::Verdict& verdict, Context& context) {
  if (context.json)
    write_whole(STDOUT_FILENO,
                monitor::verdict_json(verdict).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  else if (flags.nagios)
    write_whole(STDOUT_FILENO, monitor::verdict_nagios(verdict));
  else
    write_whole(STDOUT_FILENO, monitor::verdict_text(verdict, painter(context.color), flags.all));
  context.verdict = watch_exit_code(monitor::verdict_exit_code(verdict), flags.watch);
}

Status run_doctor(const DoctorFlags& flags, Context& context) {
  std::string sources;
  EAGLET_ASSIGN_OR_RETURN(const monitor::Thresholds thresholds,
                          read_watch_thresholds(flags.watch, flags.watch.print_config ? &sources : nullptr));
  if (flags.watch.print_config) {
    write_whole(STDOUT_FILENO, sources);
    return {};
  }
  if (!flags.snapshots.empty()) {
    EAGLET_ASSIGN_OR_RETURN(const monitor::RunSeries series, monitor::read_saved_views(flags.snapshots));
    print_verdict(flags, monitor::make_verdict(series, thresholds), context);
    return {};
  }
  return Status(StatusCode::kUsage, "nothing to judge", {},
                "eaglet doctor PID, RUN_DIR, LOG or NAME; or --snapshots DIR...");
}

}  // namespace

Run add_doctor(CLI::App& app) {
  auto flags = std::make_shared<DoctorFlags>();
  app.description("Say whether a training run is healthy, stuck or dead, why, and what to do next.");
  app.footer(
      "  eaglet doctor --snapshots mail/t0 mail/t1    views that a colleague saved, oldest first\n"
      "  eaglet doctor --snapshots mail --nagios      one line; exit code 0 ok, 1 warn, 2 crit, 3 unknown");
  app.add_option("--snapshots", flags->snapshots,
                 "folders of saved views, oldest first; or one folder that holds them")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1, -1)
      ->type_name("DIR");
  app.add_flag("--nagios", flags->nagios, "one line with performance data, for Nagios and its like");
  app.add_flag("--all", flags->all, "every judgement with its threshold");
  add_watch_options(app, flags->watch);
  return [flags](Context& context) { return run_doctor(*flags, context); };
}

}  // namespace eaglet::apps
