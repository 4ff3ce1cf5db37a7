#include "monitor/log_reader.h"

#include <cmath>

#include "monitor/log_errors.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostSamples = 4096, kMostErrors = 50, kLastLines = 20, kStepTimes = 256;
constexpr std::size_t kMostMetrics = 128;
constexpr std::int64_t kRankSlack = 50;  // ranks that print into one file are at most this many steps apart
constexpr double kDay = 86400;

/// Every second sample of the older half goes; spikes of the newer half stay.
void thin(std::vector<MetricSample>* samples) {
  std::size_t kept = 0;
  const std::size_t half = samples->size() / 2;
  for (std::size_t i = 0; i < samples->size(); ++i)
    if (i >= half || i % 2 == 0) (*samples)[kept++] = (*samples)[i];
  samples->resize(kept);
}

bool is_whole(std::string_view tail) {
  const std::string_view text = trim(tail);
  return !text.empty() && (text.back() == ']' || text.back() == '}');
}

}  // namespace

void LogReader::feed(std::string_view bytes) {
  facts_.bytes += bytes.size();
  splitter_.feed(bytes, [this](std::string_view text, bool) { segment(text); });
}

void LogReader::add_scalars(std::int64_t step, double time,
                            const std::vector<std::pair<std::string, double>>& scalars) {
  LogPoint point;
  for (const auto& [tag, value] : scalars) point.take(tag, value);
  point.step = step;
  if (!point.metrics.empty()) add(point, time, true);
}

LogFacts LogReader::facts() const {
  const bool tail = is_whole(splitter_.tail());
  if (!tail && !rows_.open()) return facts_;
  LogReader copy = *this;
  if (tail) copy.segment(copy.splitter_.tail());
  copy.finish_wrapped();
  copy.facts_.bytes = facts_.bytes;
  return std::move(copy.facts_);
}

void LogReader::segment(std::string_view raw) {
  if (raw.empty()) return;
  const std::string text = without_controls(raw);
  if (trim(text).empty()) return;
  ++facts_.lines;
  std::optional<WrappedRows::Record> done;
  const bool wrapped = rows_.take(text, &done);
  if (done) wrapped_record(*done);
  if (wrapped) {
    keep_last(text);
    return;
  }
  finish_wrapped();
  line(text, "", LogFacts::kNone, false);
}

void LogReader::finish_wrapped() {
  if (const auto record = rows_.finish()) wrapped_record(*record);
}

void LogReader::wrapped_record(const WrappedRows::Record& record) {
  const auto time = record.clock.empty() ? std::optional<double>() : clock_duration(record.clock);
  line(record.text, record.level, time.value_or(LogFacts::kNone), false);
}

void LogReader::keep_last(std::string_view text) {
  facts_.last_lines.emplace_back(text.substr(0, 300));
  if (facts_.last_lines.size() > kLastLines) facts_.last_lines.pop_front();
}

void LogReader::line(std::string_view text, const std::string& level, double time, bool has_date) {
  if (const auto bar = find_bar(text)) {
    ++facts_.recognised;
    const BarKind kind = bar_kind(bar->description);
    facts_.bar_seen = true;
    if (kind == BarKind::kTrain) add(point_of(*bar), LogFacts::kNone, false);
    if (kind == BarKind::kValidate) set_phase(LogPhase::kValidate);
    if (kind == BarKind::kLoad) set_phase(LogPhase::kLoad);
    if (trim(bar->rest).empty()) return;
    line(trim(bar->rest), level, time, has_date);  // a record glued to the bar
    return;
  }
  if (level.empty()) keep_last(text);
  LinePrefix prefix;
  prefix.level = level;
  prefix.time = time;
  prefix.time_has_date = has_date;
  const std::string_view body = without_prefix(text, &prefix);
  line_time_ = continued(prefix.time, prefix.time_has_date);
  facts_.info_seen = facts_.info_seen || prefix.level == "INFO";
  facts_.warning_seen = facts_.warning_seen || prefix.level == "WARNING" || prefix.level == "ERROR";
  if (body == "Traceback (most recent call last):") {
    in_traceback_ = true;
    ++facts_.recognised;
    return;
  }
  if (in_traceback_ && starts_with(text, " ")) return;  // the frames
  in_traceback_ = false;
  if (record_line(body, prefix.time, prefix.time_has_date)) {
    ++facts_.recognised;
    return;
  }
  if (prefix.level != "WARNING" || contains(body, "Received SIG")) note_error(body, prefix.rank);
  if (fact_line(body)) ++facts_.recognised;
}

bool LogReader::record_line(std::string_view text, double time, bool has_date) {
  std::string event, message;
  double json_time = LogFacts::kNone;
  if (const auto json = json_record(text, &event, &message, &json_time)) {
    if (!std::isnan(json_time)) line_time_ = json_time;
    json_event(event, message, *json);
    const bool is_step = event.empty() || event == "step" || event == "validation";
    if (is_step && !json->metrics.empty()) add(*json, std::isnan(json_time) ? time : json_time, true);
    return !event.empty() || !json->metrics.empty();
  }
  if (const auto point = find_record(text)) {
    add(*point, time, has_date);
    if (contains(text, "train_runtime")) {  // HF Trainer's last dict
      facts_.finished = true;
      facts_.finished_line = std::string(text.substr(0, 200));
    }
    return true;
  }
  if (const auto point = server_record(text)) {
    add(*point, time, has_date);
    return true;
  }
  return starts_with(text, "slot ") || starts_with(text, "srv  ");
}

void LogReader::json_event(const std::string& event, const std::string& message, const LogPoint& point) {
  if (event == "start" || event == "resume") {
    facts_.resumed = facts_.resumed || event == "resume";
    facts_.finished = facts_.interrupted = false;
    facts_.errors.clear();
    if (point.step) begin_again(*point.step);
    set_phase(LogPhase::kLoad);
  } else if (event == "checkpoint") {
    set_phase(LogPhase::kSave);
    facts_.checkpoints.push_back(message);
    if (facts_.checkpoints.size() > 64) facts_.checkpoints.erase(facts_.checkpoints.begin());
  } else if (event == "warning" && starts_with(message, "weights of rank ")) {
    LogError drift;
    drift.kind = "ranks_differ";
    drift.text = message.substr(0, 300);
    drift.line = static_cast<std::int64_t>(facts_.lines);
    if (facts_.errors.size() < kMostErrors) facts_.errors.push_back(std::move(drift));
  } else if (event == "validation") {
    set_phase(LogPhase::kValidate);
  } else if (event == "phase") {
    if (message == "save") set_phase(LogPhase::kSave);
    if (message == "compile") set_phase(LogPhase::kCompile);
  } else if (event == "end") {
    const bool stopped = contains(message, "interrupt") || contains(message, "stopped");
    facts_.interrupted = stopped;
    facts_.finished = !stopped && !contains(message, "fail");
    facts_.finished_line = message.empty() ? "end of run" : message;
    set_phase(LogPhase::kFinished);
  }
}

void LogReader::set_phase(LogPhase phase) {
  const bool validated = facts_.phase == LogPhase::kValidate, validates = phase == LogPhase::kValidate;
  if (validates && !validated) validation_began_ = line_time_;
  if (validated && !validates && line_time_ >= validation_began_)  // not so when a time is unknown
    facts_.last_validation_seconds = line_time_ - validation_began_;
  facts_.phase = phase;
  facts_.phase_line = facts_.lines;
}

void LogReader::note_error(std::string_view text, const std::string& rank) {
  auto error = find_error(text);
  if (!error || facts_.errors.size() >= kMostErrors) return;
  error->rank = rank;
  error->line = static_cast<std::int64_t>(facts_.lines);
  facts_.errors.push_back(std::move(*error));
}

void LogReader::begin_again(std::int64_t step) {
  for (auto& [name, samples] : facts_.metrics)
    while (!samples.empty() && samples.back().step >= step) samples.pop_back();
  while (!facts_.step_times.empty() && facts_.step_times.back().first >= step) facts_.step_times.pop_back();
  if (facts_.first_bad && facts_.first_bad->step >= step) facts_.first_bad.reset();
  facts_.last_step = std::min(facts_.last_step, step - 1);
  restarted_ = true;
}

/// Printed times without a date go on over midnight.
double LogReader::continued(double time, bool has_date) {
  if (has_date || std::isnan(time) || std::isnan(facts_.last_time)) return time;
  const double day = std::floor(facts_.last_time / kDay) * kDay;
  time += day;
  return time + kDay / 2 < facts_.last_time ? time + kDay : time;
}

void LogReader::add(const LogPoint& point, double time, bool has_date) {
  // A training bar may show the last validation's loss beside its own.
  bool held_out = !point.metrics.empty() && !point.from_bar;
  for (const auto& [name, value] : point.metrics) held_out = held_out && starts_with(name, "val_");
  if (point.server || held_out) {
    if (held_out) set_phase(LogPhase::kValidate);
    MetricSample sample{point.step.value_or(facts_.last_step), facts_.records, 0, false};
    for (const auto& [name, value] : point.metrics) {
      sample.value = value;
      if (point.server || starts_with(name, "val_")) add_sample(name, sample);
    }
    return;
  }
  if (point.from_bar)
    ++facts_.bars;
  else
    ++facts_.records;
  facts_.errors.clear();  // the run went on after them
  facts_.finished = facts_.interrupted = false;
  set_phase(LogPhase::kTrain);
  if (point.total && *point.total > 0) facts_.total_steps = *point.total;
  if (point.epoch) facts_.epoch = *point.epoch;
  if (!std::isnan(point.seconds_per_step)) facts_.seconds_per_step = point.seconds_per_step;
  time = continued(time, has_date);
  if (!std::isnan(time)) {
    if (std::isnan(facts_.first_time)) facts_.first_time = time;
    facts_.last_time = time;
  }
  if (point.step) {
    if (*point.step < facts_.last_step - kRankSlack || (restarted_ && *point.step <= facts_.last_step))
      begin_again(*point.step);
    restarted_ = false;
    if (facts_.first_step < 0) facts_.first_step = *point.step;
    facts_.last_step = std::max(facts_.last_step, *point.step);
    if (!std::isnan(time) && (facts_.step_times.empty() || facts_.step_times.back().first < *point.step)) {
      facts_.step_times.emplace_back(*point.step, time);
      if (facts_.step_times.size() > kStepTimes) facts_.step_times.pop_front();
    }
  }
  // HF's dicts carry no step: the bar before them does.
  const std::int64_t step = point.step.value_or(facts_.bars > 0 ? facts_.last_step : -1);
  for (const auto& [name, value] : point.metrics)
    add_sample(name, {step, facts_.records, value, point.from_bar});
  if (!std::isnan(time)) add_sample("printed_seconds", {step, facts_.records, time, point.from_bar});
}

void LogReader::add_sample(const std::string& metric, const MetricSample& sample) {
  if (!std::isfinite(sample.value) && !facts_.first_bad && !contains(metric, "norm"))
    facts_.first_bad = BadValue{metric, sample.record, sample.step, sample.value};
  auto it = facts_.metrics.find(metric);
  if (it == facts_.metrics.end()) {
    if (facts_.metrics.size() >= kMostMetrics) return;
    it = facts_.metrics.emplace(metric, std::vector<MetricSample>()).first;
  }
  std::vector<MetricSample>& samples = it->second;
  if (sample.step >= 0 && !samples.empty() && samples.back().step >= sample.step) {
    MetricSample& last = samples.back();
    if (last.step == sample.step && (last.from_bar || !sample.from_bar)) last = sample;
    return;  // a rank that lags prints an older step
  }
  samples.push_back(sample);
  if (samples.size() > kMostSamples) thin(&samples);
}

}  // namespace eaglet::monitor
