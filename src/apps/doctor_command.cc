#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "apps/command.h"
#include "apps/measured_peak.h"
#include "apps/pager.h"
#include "apps/terminal.h"
#include "apps/watch_options.h"
#include "apps/watch_target.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "monitor/run_probe.h"
#include "monitor/saved_views.h"
#include "monitor/text_scan.h"
#include "monitor/verdict_plain.h"

namespace eaglet::apps {
namespace {

struct DoctorFlags {
  WatchOptions watch;
  std::string target, host, sample_for = "10s", probe, peak;
  std::vector<std::string> snapshots;
  bool nagios = false, all = false, plain = false;
};

void print_verdict(const DoctorFlags& flags, const monitor::Verdict& verdict, Context& context) {
  if (context.json)
    write_whole(STDOUT_FILENO,
                monitor::verdict_json(verdict).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  else if (flags.nagios)
    write_whole(STDOUT_FILENO, monitor::verdict_nagios(verdict));
  else if (flags.plain)
    write_whole(STDOUT_FILENO, monitor::verdict_plain(verdict));
  else
    show_text(monitor::verdict_text(verdict, painter(context.color), flags.all));
  context.verdict = watch_exit_code(monitor::verdict_exit_code(verdict), flags.watch);
}

/// A series of views over --for; a run that is gone needs no more than one.
Status judge_living(const DoctorFlags& flags, const monitor::Thresholds& thresholds, Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const double seconds, parse_duration(flags.sample_for));
  if (!flags.host.empty()) {
    EAGLET_ASSIGN_OR_RETURN(const monitor::Verdict verdict,
                            judge_on_host(flags.host, {flags.target, flags.watch.gpu_metrics, thresholds},
                                          seconds, *context.progress));
    print_verdict(flags, verdict, context);
    return {};
  }
  EAGLET_ASSIGN_OR_RETURN(WatchedRun run, open_run(flags.target, flags.watch.gpu_metrics));
  const double begin = monotonic_seconds();
  run.sampler->sample();
  context.progress->begin("look", static_cast<std::uint64_t>(seconds), "seconds");
  double next = begin;
  const bool server = !run.sampler->target().server.host.empty();
  while ((run.sampler->alive() || server) && next < begin + seconds) {
    next = std::min(next + 1, begin + seconds);
    context.progress->update(static_cast<std::uint64_t>(next - begin),
                             "sampling " + run.sampler->target().name);
    sleep_until(next, [&] {
      context.progress->note(fmt::format("sampling {}, {:.0f} of {:.0f} s", run.sampler->target().name,
                                         monotonic_seconds() - begin, seconds));
    });
    if (interrupted()) return Status(StatusCode::kInterrupted, "interrupted before a verdict");
    run.sampler->sample();
  }
  // Nobody here has the log open: whether it still grows is all there is to see.
  if (run.sampler->log_only() && !server && seconds > 0) {
    sleep_until(begin + std::min(seconds, 2.0));
    run.sampler->sample();
  }
  context.progress->end("");
  print_verdict(flags, monitor::make_verdict(run.sampler->series(), thresholds), context);
  return {};
}

Status answer_probe(const DoctorFlags& flags, Context& context) {
  std::string why;
  EAGLET_ASSIGN_OR_RETURN(const bool yes, monitor::probe_run(flags.target, flags.probe, &why));
  write_whole(STDOUT_FILENO, flags.probe + (yes ? " ok: " : " failed: ") + why + "\n");
  context.verdict = yes ? 0 : 1;
  return {};
}

/// `--peak 989`, `--peak measure`, `--peak measure:bf16`: what MFU is a share of.
Status set_peak(const DoctorFlags& flags, Context& context, monitor::Thresholds* thresholds) {
  if (flags.peak.empty()) return {};
  const std::string measure = "measure";
  if (flags.peak.compare(0, measure.size(), measure) != 0) {
    const auto given = monitor::number(flags.peak);
    if (!given || !(*given > 0) || !(*given < 1e6))
      return Status(StatusCode::kUsage, "'" + flags.peak + "' is no peak", "--peak",
                    "TFLOP/s of one rank's device, for example 989; or measure, measure:f32, measure:bf16");
    thresholds->peak_tflops = *given;
    return {};
  }
  if (!flags.host.empty() || !flags.snapshots.empty())
    return Status(StatusCode::kUsage, "only this machine can be measured", "--peak",
                  "run it on the machine of the run; or give a number of TFLOP/s");
  std::string type = flags.peak.size() > measure.size() ? flags.peak.substr(measure.size() + 1) : "";
  EAGLET_ASSIGN_OR_RETURN(thresholds->peak_tflops, measured_peak_tflops(&type));
  const std::string told =
      fmt::format("peak of this machine's processors: {:.4g} TFLOP/s in {}", thresholds->peak_tflops, type);
  context.progress->note(told);
  if (!flags.target.empty()) return {};
  write_whole(
      STDOUT_FILENO,
      context.json
          ? json_line(Json{{"schema", 1}, {"peak_tflops", thresholds->peak_tflops}, {"type", type}}) + "\n"
          : fmt::format("peak_tflops = {:.4g}  # {}, measured; one rank on the whole machine\n",
                        thresholds->peak_tflops, type));
  return {};
}

Status run_doctor(const DoctorFlags& flags, Context& context) {
  std::string sources;
  EAGLET_ASSIGN_OR_RETURN(monitor::Thresholds thresholds,
                          read_watch_thresholds(flags.watch, flags.watch.print_config ? &sources : nullptr));
  EAGLET_RETURN_IF_ERROR(set_peak(flags, context, &thresholds));
  if (flags.watch.print_config) {
    show_text(sources);
    return {};
  }
  if (!flags.snapshots.empty()) {
    EAGLET_ASSIGN_OR_RETURN(const monitor::RunSeries series, monitor::read_saved_views(flags.snapshots));
    print_verdict(flags, monitor::make_verdict(series, thresholds), context);
    return {};
  }
  if (!flags.target.empty() && !flags.probe.empty()) return answer_probe(flags, context);
  if (!flags.target.empty()) return judge_living(flags, thresholds, context);
  if (thresholds.peak_tflops > 0 && !flags.peak.empty()) return {};  // only measured
  return Status(StatusCode::kUsage, "nothing to judge", {},
                "eaglet doctor PID, RUN_DIR, LOG or NAME; or --snapshots DIR...");
}

}  // namespace

Run add_doctor(CLI::App& app) {
  auto flags = std::make_shared<DoctorFlags>();
  app.description("Say whether a training run is healthy, stuck or dead, why, and what to do next.");
  app.footer(
      "  eaglet doctor 4711                           a process, its ranks, workers, log and GPUs\n"
      "  eaglet doctor runs/mine                      a run directory; or a log file, or a word of a command "
      "line\n"
      "  eaglet doctor http://127.0.0.1:8000          a server of a model, by its own /metrics\n"
      "  eaglet doctor --host me@gpu7 k25-a           a run on another machine; nothing stays there\n"
      "  eaglet doctor --snapshots mail/t0 mail/t1    views that a colleague saved, oldest first\n"
      "  eaglet doctor --snapshots mail --nagios      one line; exit code 0 ok, 1 warn, 2 crit, 3 unknown");
  app.add_option(
      "target", flags->target,
      "a process id, a run directory, a log file, Trackio's file, a server's http:// address, or a name");
  CLI::Option* host =
      app.add_option("--host", flags->host, "judge a run on another machine, over your own ssh")
          ->type_name("USER@MACHINE");
  app.add_option("--for", flags->sample_for, "how long to look at a living run")->type_name("DURATION");
  app.add_option("--probe", flags->probe,
                 "answer at once from the run's status file, with 0 or 1: startup, readiness, liveness")
      ->check(CLI::IsMember({"startup", "readiness", "liveness"}).description(""))
      ->excludes(host)
      ->type_name("QUESTION");
  app.add_option("--peak", flags->peak,
                 "for MFU: TFLOP/s of one rank's device; or measure this machine's processors now")
      ->type_name("TFLOPS|measure");
  CLI::Option* snapshots =
      app.add_option("--snapshots", flags->snapshots,
                     "folders of saved views, oldest first; or one folder that holds them")
          ->excludes(host)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->expected(1, -1)
          ->type_name("DIR");
  CLI::Option* nagios =
      app.add_flag("--nagios", flags->nagios, "one line with performance data, for Nagios and its like");
  app.add_flag("--plain", flags->plain, "one judgement a line, columns between tabs, for cut and awk")
      ->excludes(nagios);
  app.add_flag("--all", flags->all, "every judgement with its threshold");
  add_watch_options(app, flags->watch)->excludes(snapshots);
  return [flags](Context& context) { return run_doctor(*flags, context); };
}

}  // namespace eaglet::apps
