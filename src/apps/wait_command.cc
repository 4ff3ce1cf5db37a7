#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "apps/command.h"
#include "apps/server_probe.h"
#include "apps/terminal.h"
#include "apps/watch_options.h"
#include "apps/watch_target.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "monitor/text_scan.h"
#include "monitor/wake.h"

namespace eaglet::apps {
namespace {

using monitor::RunState;
using monitor::Verdict;

struct WaitFlags {
  WatchOptions watch;
  std::string target, until = "first-step", patience = "20m";
};

/// What is waited for.
struct Goal {
  enum class Kind { kStep, kLoss, kDone, kServer } kind = Kind::kStep;
  bool states = false;  // of a server: it makes hidden states too
  std::int64_t step = 0;
  double loss = 0;
};

Result<Goal> parse_goal(const std::string& text) {
  Goal goal;
  if (text == "first-step") return goal;
  if (text == "done") {
    goal.kind = Goal::Kind::kDone;
    return goal;
  }
  if (text == "server-ready" || text == "states-ready") {
    goal.kind = Goal::Kind::kServer;
    goal.states = text == "states-ready";
    return goal;
  }
  if (monitor::starts_with(text, "step=")) {
    if (const auto step = monitor::whole_number(text.substr(5))) {
      goal.step = *step;
      return goal;
    }
  }
  if (monitor::starts_with(text, "loss-below=")) {
    if (const auto loss = monitor::number(text.substr(11)); loss && std::isfinite(*loss)) {
      goal.kind = Goal::Kind::kLoss;
      goal.loss = *loss;
      return goal;
    }
  }
  return Status(StatusCode::kUsage, "'" + text + "' is nothing to wait for", "--until",
                "first-step, step=N, loss-below=X, done, server-ready or states-ready");
}

bool reached(const Goal& goal, const Verdict& verdict) {
  switch (goal.kind) {
    case Goal::Kind::kStep:
      return verdict.step >= goal.step;
    case Goal::Kind::kDone:
      return verdict.state.state == RunState::kFinished;
    case Goal::Kind::kLoss: {
      const auto& loss = verdict.log.series(verdict.log.first_loss_name());
      return !loss.empty() && loss.back().value < goal.loss;
    }
    case Goal::Kind::kServer:
      break;
  }
  return false;
}

/// Milestones on the way, each said once, and a word every half minute of silence.
class Waiting {
 public:
  Waiting(const WaitFlags& flags, Context& context, double seconds)
      : flags_(flags),
        context_(context),
        begin_(monotonic_seconds()),
        deadline_(begin_ + seconds),
        spoke_(begin_) {}

  double elapsed() const { return monotonic_seconds() - begin_; }
  bool over() const { return monotonic_seconds() >= deadline_; }

  void say(const std::string& what, const std::string& text) {
    spoke_ = monotonic_seconds();
    if (context_.json)
      write_whole(
          STDOUT_FILENO,
          json_line(Json{{"schema", 1}, {"elapsed_seconds", elapsed()}, {"event", what}, {"text", text}}) +
              "\n");
    else
      write_whole(STDOUT_FILENO, fmt::format("+{:<7} {}\n", human_duration(elapsed()), text));
  }
  void milestone(const std::string& what, bool seen, const std::string& text) {
    if (!seen || std::find(said_.begin(), said_.end(), what) != said_.end()) return;
    said_.push_back(what);
    say(what, text);
  }
  void still_waiting(const std::string& evidence) {
    if (monotonic_seconds() - spoke_ < 30) return;
    say("waiting", fmt::format("waiting for {}: {}; at most {} more", flags_.until, evidence,
                               human_duration(deadline_ - monotonic_seconds())));
  }
  /// What is to end a pause early.
  void listen_to(const monitor::Sampler& sampler) {
    const monitor::RunSeries& series = sampler.series();
    std::vector<std::int64_t> pids = sampler.target().roots;
    if (!series.views.empty() && series.views.back().processes)
      for (const monitor::ProcessView& process : *series.views.back().processes) pids.push_back(process.pid);
    wake_.follow(pids, sampler.target().log_path, sampler.target().output_dir);
  }
  /// 0.5, 1, 2, then every 5 seconds, or as soon as something happens to the run. `status` is said when
  /// somebody sends SIGUSR1.
  void pause(const std::function<std::string()>& status) {
    const double until = std::min(monotonic_seconds() + step_, deadline_);
    step_ = std::min(5.0, 2 * step_);
    while (monotonic_seconds() < until && !interrupted()) {
      if (take_save_request())
        say("status", fmt::format("waiting for {}: {}; at most {} more", flags_.until, status(),
                                  human_duration(std::max(0.0, deadline_ - monotonic_seconds()))));
      if (wake_.wait(std::min(kSlice, until - monotonic_seconds()))) return;
    }
  }

 private:
  static constexpr double kSlice = 0.3;  // so soon signals are seen
  monitor::Wake wake_;
  const WaitFlags& flags_;
  Context& context_;
  double begin_, deadline_, spoke_, step_ = 0.5;
  std::vector<std::string> said_;
};

void say_milestones(const Verdict& v, const monitor::RunSeries& series, Waiting* waiting) {
  if (!v.activity.ranks.empty())
    waiting->milestone("process", true,
                       fmt::format("process {} is there, {} rank{}", v.activity.ranks.front().pid,
                                   v.activity.ranks.size(), v.activity.ranks.size() == 1 ? "" : "s"));
  waiting->milestone("config", series.config.has_value(), "configuration " + series.config_path);
  bool held = !v.activity.devices.empty();
  for (const auto& device : v.activity.devices) held = held && device.used_bytes > 1e9;
  waiting->milestone("gpu_memory", held, "every GPU holds more than 1 GB");
  waiting->milestone("log", v.log_known && v.log.lines > 0, "first line in " + v.log_path);
  const auto& loss = v.log.series(v.log.first_loss_name());
  if (loss.empty()) return;
  waiting->milestone("first_metric", true,
                     fmt::format("first metric: step {}, {} {:.4g}", loss.front().step,
                                 v.log.first_loss_name(), loss.front().value));
  waiting->milestone("three_metrics", loss.size() >= 3,
                     std::isnan(v.eta_seconds) ? fmt::format("three records, step {}", v.step)
                                               : fmt::format("three records, step {}/{}, eta {}", v.step,
                                                             v.total_steps, human_duration(v.eta_seconds)));
  waiting->milestone("loss_moved", loss.size() >= 3 && loss.back().value < loss.front().value,
                     fmt::format("the loss moves: {} {:.4g} -> {:.4g}", v.log.first_loss_name(),
                                 loss.front().value, loss.back().value));
}

void print_end(const Verdict& verdict, const Context& context) {
  if (context.json) return;
  std::string text = std::string(state_word(verdict.state.state)) + "  " + verdict.headline + "\n";
  for (const std::string& line : verdict.log.last_lines) text += "  | " + line + "\n";
  if (!verdict.next.empty()) text += "next    " + verdict.next + "\n";
  write_whole(STDOUT_FILENO, text);
}

/// What no waiting mends: the run lives, but not to any use.
const monitor::Judgement* hopeless_fault(const Verdict& verdict) {
  constexpr const char* kHopeless[] = {
      "finite",      "zero",       "lost", "xid",      "ecc",      "rank_gone", "port", "vocabulary_maps",
      "data_layers", "first_loss", "disk", "oom_kill", "replicas", "defunct",   "ranks"};
  for (const monitor::Judgement& j : verdict.judgements) {
    if (j.level == monitor::Level::kCrit)
      for (const char* name : kHopeless)
        if (j.name == name) return &j;
    // Another configuration than the one that was asked for is another run.
    if (j.level == monitor::Level::kWarn && j.name == "declared") return &j;
    if (j.level != monitor::Level::kOk && j.name == "log_error") return &j;
  }
  return nullptr;
}

int code_at_deadline(const Verdict& verdict) {
  switch (verdict.state.state) {
    case RunState::kStalled:
    case RunState::kDead:
      return 2;
    case RunState::kUnknownState:
      return 3;
    default:
      return 1;  // active, but late
  }
}

Status wait_for_server(const WaitFlags& flags, bool states, Waiting* waiting, Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProbe> probe, open_server_probe(flags.target, states));
  ServerProbe::Look look;
  while (true) {
    look = probe->look();
    waiting->milestone("connection", look.connection, "it accepts connections");
    waiting->milestone("health", look.health, "GET /health is well");
    waiting->milestone("model", look.ready, "it serves " + look.model);
    waiting->milestone("ready", look.completes, "it completes a token: ready");
    waiting->milestone("states", look.states, "it makes hidden states: " + look.shape);
    if (states ? look.states : look.completes) return {};
    if (interrupted()) return Status(StatusCode::kInterrupted, "interrupted while waiting");
    if (look.final || waiting->over()) break;
    waiting->still_waiting(look.missing);
    waiting->pause([&] { return look.missing; });
  }
  waiting->say("deadline", "not ready: " + look.missing);
  context.verdict = watch_exit_code(look.final ? 2 : look.address ? 1 : 3, flags.watch);
  return {};
}

Status wait_for_run(const WaitFlags& flags, const Goal& goal, const monitor::Thresholds& thresholds,
                    Waiting* waiting, Context& context) {
  Result<WatchedRun> run = Status(StatusCode::kNotFound, "not looked yet");
  Verdict verdict;
  while (true) {
    if (!run.ok() || (run->sampler->series().views.empty() == false && !run->sampler->alive())) {
      const bool had = run.ok();
      auto again = open_run(flags.target, flags.watch.gpu_metrics);  // it may start later, or start again
      if (again.ok() || !had) run = std::move(again);
      if (!run.ok() && run.status().code() != StatusCode::kNotFound) return run.status();
    }
    if (run.ok()) {
      run->sampler->sample();
      const monitor::RunSeries& series = run->sampler->series();
      verdict = monitor::make_verdict(series, thresholds);
      waiting->listen_to(*run->sampler);
      say_milestones(verdict, series, waiting);
      if (reached(goal, verdict)) {
        waiting->say("reached",
                     fmt::format("{} reached{}", flags.until,
                                 verdict.step >= 0 ? fmt::format(" at step {}", verdict.step) : ""));
        return {};
      }
      if (const monitor::Judgement* hopeless = hopeless_fault(verdict)) {
        waiting->say("failed", std::string(monitor::layer_word(hopeless->layer)) + ": " + hopeless->reason +
                                   (hopeless->advice.empty() ? "" : " - " + hopeless->advice));
        print_end(verdict, context);
        context.verdict = watch_exit_code(2, flags.watch);
        return {};
      }
      const bool known_dead =
          verdict.state.state == RunState::kDead &&
          (!run->sampler->target().roots.empty() || !run->sampler->target().launch_path.empty() ||
           !run->sampler->target().status_path.empty() || verdict.log.cause() != nullptr);
      if (known_dead || verdict.state.state == RunState::kFinished) {
        waiting->say("ended", "ended before " + flags.until + ": " + verdict.state.cause);
        print_end(verdict, context);
        context.verdict = watch_exit_code(2, flags.watch);
        return {};
      }
      waiting->still_waiting(std::string(state_word(verdict.state.state)) + ", " + verdict.state.cause);
    } else {
      waiting->still_waiting("nothing called '" + flags.target + "' yet");
    }
    if (interrupted()) return Status(StatusCode::kInterrupted, "interrupted while waiting");
    if (waiting->over()) break;
    waiting->pause([&] {
      return run.ok() ? std::string(state_word(verdict.state.state)) + ", " + verdict.headline
                      : "nothing called '" + flags.target + "' yet";
    });
  }
  waiting->say("deadline",
               "not reached: " + flags.until +
                   (run.ok() ? "; " + std::string(state_word(verdict.state.state)) + ", " + verdict.headline
                             : "; nothing was seen"));
  context.verdict = watch_exit_code(run.ok() ? code_at_deadline(verdict) : 3, flags.watch);
  return {};
}

Status run_wait(const WaitFlags& flags, Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const Goal goal, parse_goal(flags.until));
  EAGLET_ASSIGN_OR_RETURN(const double seconds, parse_duration(flags.patience));
  EAGLET_ASSIGN_OR_RETURN(const monitor::Thresholds thresholds, read_watch_thresholds(flags.watch, nullptr));
  Waiting waiting(flags, context, seconds);
  if (goal.kind == Goal::Kind::kServer && !flags.watch.gpu_metrics.empty())
    return Status(StatusCode::kUsage, "a server is asked, not its GPUs", "--gpu-metrics",
                  "leave it out with --until " + flags.until);
  if (goal.kind == Goal::Kind::kServer) return wait_for_server(flags, goal.states, &waiting, context);
  return wait_for_run(flags, goal, thresholds, &waiting, context);
}

}  // namespace

Run add_wait(CLI::App& app) {
  auto flags = std::make_shared<WaitFlags>();
  app.description("Wait until a run or a server has come so far, and fail at once when it dies.");
  app.footer(
      "  eaglet wait runs/mine --until first-step --for 20m\n"
      "  eaglet wait k25-a --until loss-below=6.5 --for 3h\n"
      "  eaglet wait http://127.0.0.1:8000 --until server-ready --for 10m\n"
      "  eaglet wait http://127.0.0.1:8000 --until states-ready --for 10m    vLLM's hidden-states connector "
      "too");
  app.add_option("target", flags->target,
                 "a process id, a run directory, a log file, a name; or a server's address")
      ->required();
  app.add_option("--until", flags->until,
                 "first-step, step=N, loss-below=X, done, server-ready, states-ready")
      ->type_name("WHAT");
  app.add_option("--for", flags->patience, "how long at most")->type_name("DURATION");
  add_watch_options(app, flags->watch);
  return [flags](Context& context) { return run_wait(*flags, context); };
}

}  // namespace eaglet::apps
