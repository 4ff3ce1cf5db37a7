#include <algorithm>
#include <cstdint>

#include "apps/host_link.h"
#include "apps/watch_target.h"
#include "base/interrupt.h"
#include "monitor/verdict_wire.h"

namespace eaglet::apps {
namespace {

class LocalVerdicts : public VerdictSource {
 public:
  LocalVerdicts(WatchedRun run, const monitor::Thresholds& thresholds)
      : run_(std::move(run)), thresholds_(thresholds) {}
  Status look(monitor::Verdict* verdict) override {
    run_.sampler->sample();
    *verdict = monitor::make_verdict(run_.sampler->series(), thresholds_);
    return {};
  }

 private:
  WatchedRun run_;
  const monitor::Thresholds thresholds_;
};

Json request_of(const std::string& command, const WatchQuestion& question) {
  Json request = {{"wire", monitor::kWireVersion},
                  {"command", command},
                  {"target", question.target},
                  {"gpu_metrics", question.gpu_metrics}};
  Json& numbers = request["thresholds"] = Json::object();
  for (const monitor::ThresholdEntry& entry : monitor::threshold_entries())
    numbers[entry.name] = question.thresholds.*entry.at;
  return request;
}

/// Commands that a verdict advises are for the other machine.
void say_where(const std::string& host, monitor::Verdict* verdict) {
  if (!verdict->next.empty()) verdict->next = "on " + host + ": " + verdict->next;
}

class HostVerdicts : public VerdictSource {
 public:
  HostVerdicts(std::unique_ptr<HostLink> link, std::string host)
      : link_(std::move(link)), host_(std::move(host)) {}

  /// All that has arrived; waits only for the very first.
  Status look(monitor::Verdict* verdict) override {
    while (!interrupted()) {
      EAGLET_ASSIGN_OR_RETURN(const std::optional<Json> line, link_->next(any_ ? 0 : 0.2));
      if (!line && any_) break;
      if (!line) continue;
      EAGLET_RETURN_IF_ERROR(monitor::verdict_from_wire(*line, &newest_));
      any_ = true;
    }
    if (!any_) return Status(StatusCode::kInterrupted, "interrupted before a verdict", host_);
    *verdict = newest_;
    say_where(host_, verdict);
    return {};
  }

 private:
  std::unique_ptr<HostLink> link_;
  std::string host_;
  monitor::Verdict newest_;
  bool any_ = false;
};

}  // namespace

Result<std::unique_ptr<VerdictSource>> open_verdicts(const std::string& host, const WatchQuestion& question,
                                                     double interval, Progress& progress) {
  if (host.empty()) {
    EAGLET_ASSIGN_OR_RETURN(WatchedRun run, open_run(question.target, question.gpu_metrics));
    return std::unique_ptr<VerdictSource>(
        std::make_unique<LocalVerdicts>(std::move(run), question.thresholds));
  }
  Json request = request_of("watch", question);
  request["interval"] = interval;
  EAGLET_ASSIGN_OR_RETURN(auto link, HostLink::open(host, request, progress));
  return std::unique_ptr<VerdictSource>(std::make_unique<HostVerdicts>(std::move(link), host));
}

Result<monitor::Verdict> judge_on_host(const std::string& host, const WatchQuestion& question, double seconds,
                                       Progress& progress) {
  Json request = request_of("doctor", question);
  request["seconds"] = seconds;
  EAGLET_ASSIGN_OR_RETURN(const auto link, HostLink::open(host, request, progress));
  progress.begin("look", static_cast<std::uint64_t>(seconds), "seconds");
  monitor::Verdict verdict;
  while (!interrupted()) {
    EAGLET_ASSIGN_OR_RETURN(const std::optional<Json> line, link->next(0.5));
    if (!line) continue;
    if (const auto passed = line->find("progress"); passed != line->end() && passed->is_number()) {
      progress.update(static_cast<std::uint64_t>(std::max(0.0, std::min(passed->get<double>(), seconds))),
                      "sampling " + question.target);
      continue;
    }
    EAGLET_RETURN_IF_ERROR(monitor::verdict_from_wire(*line, &verdict));
    progress.end("");
    say_where(host, &verdict);
    return verdict;
  }
  return Status(StatusCode::kInterrupted, "interrupted before a verdict", host);
}

}  // namespace eaglet::apps
