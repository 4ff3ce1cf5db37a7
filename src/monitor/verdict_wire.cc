#include "monitor/verdict_wire.h"

#include <algorithm>
#include <cmath>

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostWiredSamples = 8192, kMostItems = 1024, kMostMetrics = 256;

// Every struct lists its fields once, in fields(); one of these two walks the list. So what is written and
// what is read cannot drift apart.
class Writer {
 public:
  explicit Writer(Json* json) : json_(*json) {}
  void operator()(const char* name, const std::string& value) { json_[name] = value; }
  void operator()(const char* name, double value) {
    json_[name] = std::isfinite(value) ? Json(value) : Json(nullptr);
  }
  void operator()(const char* name, std::int64_t value) { json_[name] = value; }
  void operator()(const char* name, std::uint64_t value) { json_[name] = value; }
  void operator()(const char* name, int value) { json_[name] = value; }
  void operator()(const char* name, bool value) { json_[name] = value; }
  void operator()(const char* name, char value) { json_[name] = std::string(1, value); }
  template <class Enum>
  void choice(const char* name, Enum value, Enum) {
    json_[name] = static_cast<int>(value);
  }
  template <class Items>
  void list(const char* name, const Items& items) {
    Json all = Json::array();
    for (const auto& item : items) {
      if constexpr (std::is_same_v<std::decay_t<decltype(item)>, std::string>) {
        all.push_back(item);
      } else {
        Json one = Json::object();
        Writer writer(&one);
        fields(writer, const_cast<std::decay_t<decltype(item)>&>(item));  // it is only read
        all.push_back(std::move(one));
      }
    }
    json_[name] = std::move(all);
  }

 private:
  Json& json_;
};

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  void operator()(const char* name, std::string& value) {
    if (const Json* found = find(name); found != nullptr && found->is_string())
      value = found->get<std::string>();
  }
  void operator()(const char* name, double& value) {
    const Json* found = find(name);
    if (found == nullptr) return;
    value = found->is_number() ? found->get<double>() : kNotKnown;
  }
  void operator()(const char* name, std::int64_t& value) { whole(name, &value); }
  void operator()(const char* name, std::uint64_t& value) {
    if (const Json* found = find(name); found != nullptr && found->is_number_unsigned())
      value = found->get<std::uint64_t>();
  }
  void operator()(const char* name, int& value) {
    std::int64_t wide = value;
    whole(name, &wide);
    value = static_cast<int>(std::clamp<std::int64_t>(wide, -1000000000, 1000000000));
  }
  void operator()(const char* name, bool& value) {
    if (const Json* found = find(name); found != nullptr && found->is_boolean()) value = found->get<bool>();
  }
  void operator()(const char* name, char& value) {
    std::string text;
    (*this)(name, text);
    if (text.size() == 1) value = text[0];
  }
  template <class Enum>
  void choice(const char* name, Enum& value, Enum last) {
    std::int64_t number = -1;
    whole(name, &number);
    if (number >= 0 && number <= static_cast<std::int64_t>(last)) value = static_cast<Enum>(number);
  }
  template <class Items>
  void list(const char* name, Items& items) {
    const Json* found = find(name);
    if (found == nullptr || !found->is_array()) return;
    items.clear();
    for (const Json& entry : *found) {
      if (items.size() >= kMostItems) return;
      typename Items::value_type item;
      if constexpr (std::is_same_v<typename Items::value_type, std::string>) {
        if (!entry.is_string()) continue;
        item = entry.get<std::string>();
      } else {
        if (!entry.is_object()) continue;
        Reader reader(entry);
        fields(reader, item);
      }
      items.push_back(std::move(item));
    }
  }

 private:
  const Json* find(const char* name) const {
    const auto it = json_.find(name);
    return it == json_.end() ? nullptr : &*it;
  }
  void whole(const char* name, std::int64_t* value) const {
    if (const Json* found = find(name); found != nullptr && found->is_number_integer())
      *value = found->get<std::int64_t>();
  }
  const Json& json_;
};

template <class Io>
void fields(Io& io, Evidence& e) {
  io("kind", e.kind), io("text", e.text), io("progress", e.progress);
}
template <class Io>
void fields(Io& io, OrphanSeen& o) {
  io("pid", o.pid), io("device", o.device), io("bytes", o.device_bytes), io("command", o.command);
}
template <class Io>
void fields(Io& io, RankActivity& r) {
  io("pid", r.pid), io("rank", r.rank), io("device", r.device), io("state", r.state), io("cores", r.cores);
  io("same_wait_place", r.same_wait_place), io("wait_place", r.wait_place);
}
template <class Io>
void fields(Io& io, DeviceActivity& d) {
  io("index", d.index), io("name", d.name), io("busy_pct", d.busy_pct), io("power_w", d.power_w);
  io("limit_w", d.limit_w), io("idle_w", d.idle_w), io("above_idle", d.above_idle);
  io("used_bytes", d.used_bytes);
  io("total_bytes", d.total_bytes), io("change_bytes", d.change_bytes), io("tensor_pct", d.tensor_pct);
  io("own_busy_pct", d.own_busy_pct), io("foreign_busy_pct", d.foreign_busy_pct),
      io("foreign_pid", d.foreign_pid);
}
template <class Io>
void fields(Io& io, Judgement& j) {
  io("name", j.name), io.choice("layer", j.layer, Layer::kLearning),
      io.choice("level", j.level, Level::kUnknown);
  io("value", j.value), io("unit", j.unit), io("window", j.window_seconds), io("threshold", j.threshold);
  io("reason", j.reason), io("advice", j.advice), io("next", j.next);
}
template <class Io>
void fields(Io& io, LogError& e) {
  io("kind", e.kind), io("text", e.text), io("rank", e.rank), io("line", e.line),
      io("consequence", e.consequence);
}
template <class Io>
void state_fields(Io& io, StateVerdict& s) {
  io.choice("state", s.state, RunState::kUnknownState), io.choice("phase", s.phase, Phase::kServe);
  io("cause", s.cause), io("silence", s.silence), io("state_advice", s.advice), io("state_next", s.next);
  io.list("evidence", s.evidence), io("suspect_pid", s.suspect_pid), io("suspect_rank", s.suspect_rank);
  io("silent", s.silent_seconds), io("allowed", s.allowed_seconds), io("resume_step", s.resume_step);
  io("lost_steps", s.lost_steps), io("resume_path", s.resume_path), io.list("orphans", s.orphans);
}
template <class Io>
void server_fields(Io& io, ServerActivity& s) {
  io("server_known", s.known), io("server_answers", s.answers), io("server_kind", s.kind);
  io("server_trouble", s.trouble), io("server_running", s.running), io("server_waiting", s.waiting);
  io("server_cache", s.cache_share), io("server_prompt_rate", s.prompt_tokens_per_second);
  io("server_rate", s.generated_tokens_per_second), io("server_still", s.still_seconds);
  io("server_accepted", s.accepted_length);
}
template <class Io>
void activity_fields(Io& io, Activity& a) {
  io("span", a.span_seconds), io("views", a.views), io("processes_known", a.processes_known);
  io("devices_known", a.devices_known), io.list("ranks", a.ranks), io("tree_cores", a.tree_cores);
  io("worker_cores", a.worker_cores), io.list("devices", a.devices), io("busy_pct", a.busy_pct);
  io("power_w", a.power_w), io("above_idle", a.above_idle), io("read_rate", a.read_bytes_per_second);
  io("write_rate", a.write_bytes_per_second), io("age", a.age_seconds), io("activity_step", a.last_step);
}
template <class Io>
void log_fields(Io& io, LogFacts& l) {
  io("log_bytes", l.bytes), io("log_lines", l.lines), io("recognised", l.recognised),
      io("records", l.records);
  io("bars", l.bars), io("first_step", l.first_step), io("log_step", l.last_step),
      io("log_total", l.total_steps);
  io("seconds_per_step", l.seconds_per_step), io("finished", l.finished), io("interrupted", l.interrupted);
  io("finished_line", l.finished_line), io.list("errors", l.errors), io.list("last_lines", l.last_lines);
}
template <class Io>
void verdict_fields(Io& io, Verdict& v) {
  io("name", v.name), io("wall", v.wall), io("up", v.up_seconds), state_fields(io, v.state);
  activity_fields(io, v.activity), server_fields(io, v.activity.server), io.list("judgements", v.judgements),
      io.choice("level", v.level, Level::kUnknown);
  io("headline", v.headline), io("advice", v.advice), io("next", v.next), io("step", v.step),
      io("advice_leads", v.advice_leads);
  io("total_steps", v.total_steps), io("eta", v.eta_seconds), io("log_known", v.log_known);
  io("log_path", v.log_path), io("output_dir", v.output_dir), io("uniform_loss", v.uniform_loss),
      io("ttt_steps", v.ttt_steps), io("max_seq_len", v.max_seq_len), log_fields(io, v.log);
}

Json sample_json(const MetricSample& s) {
  return Json::array({s.step, s.record, std::isfinite(s.value) ? Json(s.value) : Json(nullptr)});
}

/// New samples of a metric. A run that was resumed repeats steps: the new ones replace the old.
void take_samples(const Json& rows, std::vector<MetricSample>* samples) {
  for (const Json& row : rows) {
    if (!row.is_array() || row.size() != 3 || !row[0].is_number_integer() || !row[1].is_number_integer())
      continue;
    MetricSample sample;
    sample.step = row[0].get<std::int64_t>();
    sample.record = row[1].get<std::int64_t>();
    sample.value = row[2].is_number() ? row[2].get<double>() : kNotKnown;
    while (!samples->empty() && (samples->back().record >= sample.record ||
                                 (sample.step >= 0 && samples->back().step >= sample.step)))
      samples->pop_back();
    samples->push_back(sample);
  }
  if (samples->size() <= kMostWiredSamples) return;
  std::vector<MetricSample> half;
  for (std::size_t i = 1; i < samples->size(); i += 2) half.push_back((*samples)[i]);
  *samples = std::move(half);
}

}  // namespace

Json verdict_to_wire(const Verdict& verdict, std::map<std::string, std::int64_t>* sent) {
  Json wire = {{"wire", kWireVersion}};
  Writer writer(&wire);
  verdict_fields(writer, const_cast<Verdict&>(verdict));  // it is only read
  wire["workers"] = verdict.activity.roles.workers.size();
  wire["first_bad"] = nullptr;
  if (const auto& bad = verdict.log.first_bad)
    wire["first_bad"] = {{"metric", bad->metric},
                         {"record", bad->record},
                         {"step", bad->step},
                         {"infinite", std::isinf(bad->value)}};
  Json metrics = Json::object();
  for (const auto& [name, samples] : verdict.log.metrics) {
    if (samples.empty()) continue;
    const auto known = sent->find(name);
    // A log that began anew counts its records from one again.
    const bool restarted = known != sent->end() && samples.back().record < known->second;
    Json rows = Json::array();
    for (const MetricSample& sample : samples)
      if (known == sent->end() || restarted || sample.record > known->second)
        rows.push_back(sample_json(sample));
    (*sent)[name] = samples.back().record;
    if (!rows.empty()) metrics[name] = std::move(rows);
  }
  wire["metrics"] = std::move(metrics);
  return wire;
}

Status verdict_from_wire(const Json& wire, Verdict* verdict) {
  if (!wire.is_object() || wire.value("wire", Json(nullptr)) != Json(kWireVersion))
    return Status(StatusCode::kDataLoss, "what arrived is no verdict of this version");
  Reader reader(wire);
  verdict_fields(reader, *verdict);
  const Json workers = wire.value("workers", Json(nullptr));
  if (workers.is_number_unsigned())
    verdict->activity.roles.workers.resize(std::min<std::uint64_t>(workers.get<std::uint64_t>(), 100000));
  verdict->log.first_bad.reset();
  if (const Json bad = wire.value("first_bad", Json(nullptr)); bad.is_object()) {
    BadValue value;
    Reader read_bad(bad);
    bool infinite = false;
    read_bad("metric", value.metric), read_bad("record", value.record), read_bad("step", value.step);
    read_bad("infinite", infinite);
    value.value = infinite ? std::numeric_limits<double>::infinity() : kNotKnown;
    verdict->log.first_bad = value;
  }
  const auto metrics = wire.find("metrics");
  if (metrics == wire.end() || !metrics->is_object()) return {};
  for (const auto& [name, rows] : metrics->items())
    if (rows.is_array() && !rows.empty() &&
        (verdict->log.metrics.size() < kMostMetrics || verdict->log.metrics.count(name) != 0)) {
      take_samples(rows, &verdict->log.metrics[name]);
      if (verdict->log.metrics[name].empty()) verdict->log.metrics.erase(name);  // no row was one
    }
  return {};
}

}  // namespace eaglet::monitor
