#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "apps/command.h"
#include "apps/history_file.h"
#include "apps/pager.h"
#include "apps/screen.h"
#include "apps/terminal.h"
#include "apps/watch_compare.h"
#include "apps/watch_frame.h"
#include "apps/watch_options.h"
#include "apps/watch_page.h"
#include "apps/watch_target.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "generated/apps/build_facts.h"
#include "monitor/http.h"
#include "monitor/prometheus.h"
#include "monitor/series_stats.h"
#include "monitor/verdict_plain.h"

namespace eaglet::apps {
namespace {

using monitor::Verdict;

constexpr std::size_t kMostCurvePoints = 2000;

struct WatchFlags {
  WatchOptions watch;
  std::string target, host, textfile, html, listen, history, watch_for, interval = "1s";
  std::vector<std::string> compare;
  bool jsonl = false, plain = false, once = false, ascii = false;
};

/// One run under watch, with every way out of it.
class Watcher {
 public:
  Watcher(const WatchFlags& flags, const monitor::Thresholds& thresholds, Context& context)
      : flags_(flags), thresholds_(thresholds), context_(context) {}

  Status run() {
    EAGLET_ASSIGN_OR_RETURN(interval_, parse_duration(flags_.interval));
    double limit = 1e18;
    if (!flags_.watch_for.empty()) {
      EAGLET_ASSIGN_OR_RETURN(limit, parse_duration(flags_.watch_for));
    }
    interval_ = std::max(0.1, interval_);
    EAGLET_ASSIGN_OR_RETURN(
        source_, open_verdicts(flags_.host, {flags_.target, flags_.watch.gpu_metrics, thresholds_}, interval_,
                               *context_.progress));
    if (!flags_.history.empty()) {
      EAGLET_ASSIGN_OR_RETURN(history_file_, HistoryFile::open(flags_.history, &history_));
    }
    if (!flags_.listen.empty()) {
      EAGLET_ASSIGN_OR_RETURN(
          server_, monitor::HttpServer::listen(flags_.listen,
                                               [this](const monitor::HttpRequest& r) { return answer(r); }));
      context_.progress->note("page and metrics at " + server_->url());
    }
    const bool live = !flags_.once && !flags_.jsonl && !flags_.plain && !context_.json &&
                      is_live_terminal(STDOUT_FILENO) && ::isatty(STDIN_FILENO) == 1;
    if (live) screen_ = std::make_unique<Screen>();
    begin_ = monotonic_seconds();
    const Status status = loop(limit);
    screen_.reset();
    if (!status.ok()) return status;
    EAGLET_RETURN_IF_ERROR(write_files());
    last_words(live);
    context_.verdict = interrupted() ? 128 + interrupt_signal()
                                     : watch_exit_code(monitor::verdict_exit_code(verdict_), flags_.watch);
    return {};
  }

 private:
  /// Until the run is over, the time is up, somebody quits, or (--once) two views made a verdict.
  Status loop(double limit) {
    double next = begin_;
    while (!interrupted() && !quit_) {
      EAGLET_RETURN_IF_ERROR(source_->look(&verdict_));
      history_.add(verdict_);
      if (history_file_ != nullptr) EAGLET_RETURN_IF_ERROR(history_file_->add(moment_of(verdict_)));
      ++ticks_;
      show();
      if (server_ != nullptr) server_->send_event(std::to_string(ticks_), std::to_string(verdict_.step));
      if (monotonic_seconds() >= next_files_) {
        EAGLET_RETURN_IF_ERROR(write_files());
        next_files_ = monotonic_seconds() + 5;
      }
      const bool over = verdict_.state.state == monitor::RunState::kDead ||
                        verdict_.state.state == monitor::RunState::kFinished;
      const double elapsed = monotonic_seconds() - begin_;
      if (over || elapsed >= limit || (flags_.once && elapsed >= std::min(limit, 5.0))) return {};
      next = std::max(next + interval_, monotonic_seconds() + 0.01);
      pass_time(next);
    }
    return {};
  }

  void pass_time(double until) {
    while (!interrupted() && !quit_) {
      const double left = until - monotonic_seconds();
      if (left <= 0) return;
      if (take_save_request() && screen_ == nullptr) status_line();
      const double slice = std::min(left, 0.1);
      if (server_ != nullptr) server_->serve(screen_ == nullptr ? slice : 0.01);
      if (screen_ != nullptr) {
        take_key(screen_->key(server_ != nullptr ? std::max(0.0, slice - 0.01) : slice));
      } else if (server_ == nullptr) {
        sleep_until(monotonic_seconds() + slice);
      }
    }
  }

  void take_key(int key) {
    using Page = FrameStyle::Page;
    constexpr Page pages[] = {Page::kOverview, Page::kLog, Page::kEvents, Page::kDevices};
    if (key == 0) return;
    if (key == 'q' || key == -1 || key == 3 || key == 4)
      quit_ = true;
    else if (key == ' ')
      style_.paused = !style_.paused;
    else if (key == '?')
      style_.help = !style_.help;
    else if (key >= '1' && key <= '4')
      style_.page = pages[key - '1'];
    else if (key == 'l')
      style_.page = Page::kLog;
    else if (key == 'e')
      style_.page = Page::kEvents;
    else if (key == 'g')
      style_.page = Page::kDevices;
    else if (key == '+' || key == '=')
      style_.zoom = std::min(64, 2 * style_.zoom);
    else if (key == '-')
      style_.zoom = std::max(1, style_.zoom / 2);
    else if (key == '\t')
      style_.page = pages[(static_cast<int>(style_.page) + 1) % 4];
    draw();
  }

  void draw() {
    style_.columns = screen_ != nullptr ? screen_->columns() : terminal_columns(STDOUT_FILENO);
    style_.rows = screen_ != nullptr ? screen_->rows() : 24;
    style_.color = context_.color;
    style_.ascii = flags_.ascii || !locale_is_utf8();
    if (screen_ != nullptr) screen_->draw(watch_frame(verdict_, history_, style_));
  }

  void show() {
    if (flags_.jsonl) {
      Json line = monitor::verdict_json(verdict_);
      line["log"].erase("metrics");  // a stream repeats no curves
      if (verdict_.log_known)
        for (const std::string& name : verdict_.log.loss_names()) {
          const double loss = verdict_.log.series(name).back().value;
          line["log"][name] = std::isfinite(loss) ? Json(loss) : Json(nullptr);
        }
      write_whole(STDOUT_FILENO, json_line(line) + "\n");
    } else if (flags_.plain) {
      if (!flags_.once) write_whole(STDOUT_FILENO, monitor::moment_plain(verdict_));
    } else if (screen_ != nullptr) {
      if (!style_.paused) draw();
    } else if (!flags_.once && !context_.json) {
      plain_line();
    }
  }

  /// SIGUSR1: how it goes, once, on the error stream (a live screen shows it anyway).
  void status_line() const { write_whole(STDERR_FILENO, one_line() + "\n"); }

  std::string one_line() const {
    std::string text =
        rfc3339_utc(verdict_.wall) + "  " + state_word(verdict_.state.state) + "  " + verdict_.headline;
    if (verdict_.step >= 0) text += fmt::format("  step {}", verdict_.step);
    const auto& loss = verdict_.log.series(verdict_.log.first_loss_name());
    if (!loss.empty()) text += fmt::format("  {} {:.4g}", verdict_.log.first_loss_name(), loss.back().value);
    return text;
  }

  /// Not a terminal: a line when the state changes, and every half minute.
  void plain_line() {
    const std::string state = state_word(verdict_.state.state);
    if (state == plain_state_ && monotonic_seconds() < next_plain_) return;
    plain_state_ = state;
    next_plain_ = monotonic_seconds() + 30;
    write_whole(STDOUT_FILENO, one_line() + "\n");
  }

  void last_words(bool live) {
    if (context_.json) {
      write_whole(STDOUT_FILENO,
                  monitor::verdict_json(verdict_).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    } else if (flags_.once && flags_.plain) {
      write_whole(STDOUT_FILENO, monitor::moment_plain(verdict_));
    } else if (flags_.once && !flags_.jsonl) {
      draw();
      std::string text;
      for (const std::string& line : watch_frame(verdict_, history_, style_)) text += line + "\n";
      write_whole(STDOUT_FILENO, text);
    } else if (live) {
      write_whole(STDOUT_FILENO, monitor::verdict_text(verdict_, painter(context_.color), false));
    }
  }

  Status write_files() {
    if (ticks_ == 0) return {};
    if (!flags_.textfile.empty()) {
      EAGLET_RETURN_IF_ERROR(make_directories(flags_.textfile));
      EAGLET_RETURN_IF_ERROR(write_file_atomic(flags_.textfile + "/eaglet.prom",
                                               monitor::prometheus_text(verdict_, EAGLET_VERSION)));
    }
    if (!flags_.html.empty())
      EAGLET_RETURN_IF_ERROR(write_file_atomic(flags_.html, watch_page_file(verdict_, history_)));
    return {};
  }

  monitor::HttpReply answer(const monitor::HttpRequest& request) const {
    monitor::HttpReply reply;
    if (request.path == "/") {
      reply.type = "text/html; charset=utf-8";
      reply.body = watch_page_served(verdict_, history_);
    } else if (request.path == "/content") {
      reply.type = "text/html; charset=utf-8";
      reply.body = watch_page_content(verdict_, history_);
    } else if (request.path == "/watch.css") {
      reply.type = "text/css; charset=utf-8";
      reply.body = watch_page_style();
    } else if (request.path == "/watch.js") {
      reply.type = "text/javascript; charset=utf-8";
      reply.body = watch_page_script();
    } else if (request.path == "/metrics") {
      reply.type = monitor::kPrometheusType;
      reply.body = monitor::prometheus_text(verdict_, EAGLET_VERSION);
    } else if (request.path == "/api/v1/verdict") {
      reply.type = "application/json";
      reply.body = json_line(monitor::verdict_json(verdict_)) + "\n";
    } else if (request.path == "/api/v1/series") {
      reply.type = "application/json";
      reply.body = series_since(request);
    } else if (request.path == "/api/v1/events") {
      reply.events = true;
    } else {
      reply.status = 404;
      reply.body = "there are /, /metrics, /api/v1/verdict, /api/v1/series?since=STEP and /api/v1/events\n";
    }
    return reply;
  }

  /// Columns of every metric with a step above `since`; at most 2000 points each, with their extremes.
  std::string series_since(const monitor::HttpRequest& request) const {
    const auto it = request.query.find("since");
    const std::int64_t since = it == request.query.end() ? -1 : std::strtoll(it->second.c_str(), nullptr, 10);
    Json json = {{"schema", 1}, {"run", verdict_.name}, {"metrics", Json::object()}};
    for (const auto& [name, samples] : verdict_.log.metrics) {
      Json steps = Json::array(), values = Json::array();
      std::vector<monitor::MetricSample> newer;
      for (const monitor::MetricSample& sample : samples)
        if (sample.step > since) newer.push_back(sample);
      for (const monitor::MetricSample& sample : monitor::with_extremes(newer, kMostCurvePoints)) {
        steps.push_back(sample.step);
        values.push_back(std::isfinite(sample.value) ? Json(sample.value) : Json(nullptr));
      }
      json["metrics"][name] = {{"steps", std::move(steps)}, {"values", std::move(values)}};
    }
    return json_line(json) + "\n";
  }

  const WatchFlags& flags_;
  const monitor::Thresholds& thresholds_;
  Context& context_;
  std::unique_ptr<VerdictSource> source_;
  std::unique_ptr<monitor::HttpServer> server_;
  std::unique_ptr<Screen> screen_;
  Verdict verdict_;
  WatchHistory history_;
  std::unique_ptr<HistoryFile> history_file_;
  FrameStyle style_;
  double interval_ = 1, begin_ = 0, next_files_ = 0, next_plain_ = 0;
  std::int64_t ticks_ = 0;
  std::string plain_state_;
  bool quit_ = false;
};

Status run_compare(const WatchFlags& flags, const monitor::Thresholds& thresholds, const Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const Comparison comparison,
                          compare_runs(flags.compare[0], flags.compare[1], thresholds));
  if (!flags.html.empty()) EAGLET_RETURN_IF_ERROR(write_file_atomic(flags.html, comparison.html));
  if (context.json)
    write_whole(STDOUT_FILENO, comparison.json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  else
    show_text(comparison.text);
  return {};
}

Status run_watch(const WatchFlags& flags, Context& context) {
  EAGLET_ASSIGN_OR_RETURN(const monitor::Thresholds thresholds, read_watch_thresholds(flags.watch, nullptr));
  if (flags.compare.size() == 2) return run_compare(flags, thresholds, context);
  if (!flags.compare.empty())
    return Status(StatusCode::kUsage, "one run cannot be compared", "--compare",
                  "eaglet watch --compare RUN_A RUN_B");
  if (flags.target.empty())
    return Status(StatusCode::kUsage, "nothing to watch", {},
                  "eaglet watch PID, RUN_DIR, LOG or NAME; or --compare RUN_A RUN_B");
  return Watcher(flags, thresholds, context).run();
}

}  // namespace

Run add_watch(CLI::App& app) {
  auto flags = std::make_shared<WatchFlags>();
  app.description("Watch a training run, of any trainer, from outside: state, judgements, curves.");
  app.footer(
      "  eaglet watch runs/mine                       live view; q leaves it, the run is not touched\n"
      "  eaglet watch 4711 --listen 127.0.0.1:9109    web page, and Prometheus metrics at /metrics\n"
      "  eaglet watch k25-a --jsonl --for 10m         one JSON object a second\n"
      "  eaglet watch --host me@gpu7 runs/mine        a run on another machine; nothing stays there\n"
      "  eaglet watch --compare runs/a runs/b         what was set otherwise, and what it did");
  app.add_option(
      "target", flags->target,
      "a process id, a run directory, a log file, Trackio's file, a server's http:// address, or a name");
  CLI::Option* host =
      app.add_option("--host", flags->host, "watch a run on another machine, over your own ssh; drawn here")
          ->type_name("USER@MACHINE");
  app.add_option("--listen", flags->listen,
                 "serve a page and /metrics there; loopback unless another address is given")
      ->type_name("ADDRESS");
  app.add_option("--textfile", flags->textfile, "write eaglet.prom there for the node exporter")
      ->type_name("DIR");
  app.add_option("--html", flags->html, "write the page as one self-contained file")->type_name("FILE");
  app.add_option(
         "--history", flags->history,
         "keep what was seen in that file, and go on from what is in it: curves and events survive a restart")
      ->type_name("FILE");
  CLI::Option* jsonl =
      app.add_flag("--jsonl", flags->jsonl, "a stream of JSON objects on stdout, one each interval");
  app.add_flag("--plain", flags->plain, "one line each interval, columns between tabs, for cut and awk")
      ->excludes(jsonl);
  app.add_flag("--once", flags->once, "look for five seconds, draw once, exit with the verdict");
  app.add_option("--interval", flags->interval, "time between two looks")->type_name("DURATION");
  app.add_option("--for", flags->watch_for, "stop after that long")->type_name("DURATION");
  app.add_flag("--ascii", flags->ascii, "no characters beyond ASCII");
  CLI::Option* compare = app.add_option("--compare", flags->compare, "two runs side by side")
                             ->excludes(host)
                             ->expected(2)
                             ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                             ->type_name("RUN");
  add_watch_options(app, flags->watch)->excludes(compare);
  return [flags](Context& context) { return run_watch(*flags, context); };
}

}  // namespace eaglet::apps
