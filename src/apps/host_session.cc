#include "apps/host_session.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/terminal.h"
#include "apps/watch_target.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/wait_ready.h"
#include "monitor/thresholds.h"
#include "monitor/verdict_wire.h"

namespace eaglet::apps {
namespace {

constexpr double kLeaseSeconds = 60;
constexpr std::size_t kMostRequestBytes = 1 << 20;

/// Standard input: the request, then a newline now and then. Its end, or a minute without, ends us.
class Lease {
 public:
  /// kUnavailable when the other end is gone before a whole line came.
  Result<std::string> line() {
    while (text_.find('\n') == std::string::npos) {
      if (!wait(0.5) || text_.size() > kMostRequestBytes)
        return Status(StatusCode::kUnavailable, "no request came");
    }
    return text_.substr(0, text_.find('\n'));
  }

  /// Sleeps that long; false as soon as nobody is there any more.
  bool wait(double seconds) {
    const double until = monotonic_seconds() + seconds;
    while (!interrupted()) {
      const double now = monotonic_seconds();
      if (now - renewed_ > kLeaseSeconds) return false;
      if (now >= until) return true;
      if (!wait_ready(STDIN_FILENO, POLLIN, std::min(until, renewed_ + kLeaseSeconds))) continue;
      char bytes[4096];
      const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (got <= 0) return false;
      renewed_ = monotonic_seconds();
      if (text_.size() <= kMostRequestBytes) text_.append(bytes, static_cast<std::size_t>(got));
    }
    return false;
  }

 private:
  std::string text_;
  double renewed_ = monotonic_seconds();
};

void tell(const Json& json) {
  write_whole(STDOUT_FILENO, json_line(json) + "\n");
}

struct Request {
  std::string command, target, gpu_metrics;
  double seconds = 10, interval = 1;
  monitor::Thresholds thresholds;
};

Result<Request> read_request(const std::string& line) {
  EAGLET_ASSIGN_OR_RETURN(const Json json, parse_json(line));
  const Status wrong(StatusCode::kUsage, "the request is not understood");
  if (!json.is_object() || json.value("wire", Json(nullptr)) != Json(monitor::kWireVersion)) return wrong;
  const auto number = [&](const char* name, double standard) {
    const Json value = json.value(name, Json(nullptr));
    return value.is_number() && value.get<double>() >= 0 ? std::min(value.get<double>(), 1e9) : standard;
  };
  Request request;
  if (const Json url = json.value("gpu_metrics", Json(nullptr)); url.is_string())
    request.gpu_metrics = url.get<std::string>();
  for (const auto& [name, to] : {std::pair{"command", &request.command}, {"target", &request.target}}) {
    const Json value = json.value(name, Json(nullptr));
    if (!value.is_string()) return wrong;
    *to = value.get<std::string>();
  }
  request.seconds = number("seconds", request.seconds);
  request.interval = std::max(0.1, number("interval", request.interval));
  const Json thresholds = json.value("thresholds", Json::object());
  for (const monitor::ThresholdEntry& entry : monitor::threshold_entries())
    if (const auto it = thresholds.find(entry.name); it != thresholds.end() && it->is_number())
      request.thresholds.*entry.at = it->get<double>();
  return request;
}

Status work(const Request& request, Lease* lease) {
  EAGLET_ASSIGN_OR_RETURN(WatchedRun run, open_run(request.target, request.gpu_metrics));
  std::map<std::string, std::int64_t> sent;
  const bool once = request.command == "doctor";
  const double begin = monotonic_seconds(), end = begin + (once ? request.seconds : 1e18);
  while (true) {
    run.sampler->sample();
    const double now = monotonic_seconds();
    const bool last = once && (now >= end || !run.sampler->alive());
    if (once && !last) tell(Json{{"progress", now - begin}});
    if (!once || last)
      tell(verdict_to_wire(monitor::make_verdict(run.sampler->series(), request.thresholds), &sent));
    if (last) return {};
    if (!lease->wait(std::min(once ? 1.0 : request.interval, end - now))) return {};
  }
}

}  // namespace

Status serve_host_session(const std::string& own_directory) {
  // The name is checked: this must never remove anything but what the other end's script has made.
  if (own_directory.find("/eaglet-watch.") != std::string::npos && path_exists(own_directory + "/eaglet")) {
    const Status gone = remove_all(own_directory);
    if (!gone.ok()) return gone;
  }
  Lease lease;
  tell(Json{{"hello", monitor::kWireVersion}});
  Result<std::string> line = lease.line();
  if (!line.ok()) return {};
  auto request = read_request(*line);
  const Status status = request.ok() ? work(*request, &lease) : request.status();
  if (!status.ok())
    tell(Json{{"error",
               {{"code", static_cast<int>(status.code())},
                {"what", status.what()},
                {"where", status.where()},
                {"todo", status.todo()}}}});
  return {};
}

}  // namespace eaglet::apps
