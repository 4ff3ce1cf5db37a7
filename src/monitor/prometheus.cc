#include "monitor/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/clock.h"
#include "monitor/metric_names.h"
#include "monitor/text_scan.h"
#include "monitor/verdict_text.h"

namespace eaglet::monitor {
namespace {

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && quotes)
      out += "\\\"";
    else
      out += c;
  }
  return out;
}

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Page {
 public:
  explicit Page(const std::string& run) : run_(run) {}
  void begin(const std::string& name, const char* type, const char* help) {
    name_ = "eaglet_" + name;
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, escaped(help, false), name_, type);
  }
  void sample(double value, const std::string& more = {}) {
    out_ += fmt::format("{}{{run=\"{}\"{}}} {}\n", name_, escaped(run_, true), more, value_text(value));
  }
  void one(const std::string& name, const char* type, const char* help, double value) {
    if (std::isnan(value)) return;
    begin(name, type, help);
    sample(value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string run_, name_, out_;
};

double last_of(const Verdict& v, const char* name) {
  const auto& samples = v.log.series(name);
  return samples.empty() ? kNotKnown : samples.back().value;
}

bool legal_name(std::string_view name, bool label) {
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) return false;
  for (const char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
          (c == ':' && !label)))
      return false;
  return true;
}

/// The first place from `at` on that is neither blank nor tab, which may stand between any two signs.
std::size_t behind_blanks(std::string_view line, std::size_t at) {
  return std::min(line.size(), line.find_first_not_of(" \t", at));
}

/// `a="b",c="d"` up to the closing brace; *at ends behind it.
bool read_labels(std::string_view line, std::size_t* at, std::map<std::string, std::string>* labels) {
  while ((*at = behind_blanks(line, *at)) < line.size() && line[*at] != '}') {
    const std::size_t equals = line.find('=', *at);
    const std::size_t quote = equals == std::string_view::npos ? equals : behind_blanks(line, equals + 1);
    if (quote == std::string_view::npos || quote >= line.size() || line[quote] != '"') return false;
    const std::string name(trim(line.substr(*at, equals - *at)));
    if (!legal_name(name, true)) return false;
    std::string value;
    std::size_t i = quote + 1;
    for (; i < line.size() && line[i] != '"'; ++i) {
      if (line[i] == '\\' && i + 1 < line.size()) {
        ++i;
        value += line[i] == 'n' ? '\n' : line[i];
      } else {
        value += line[i];
      }
    }
    if (i >= line.size()) return false;
    (*labels)[name] = value;
    *at = behind_blanks(line, i + 1);
    if (*at < line.size() && line[*at] == ',') ++*at;
  }
  if (*at >= line.size()) return false;
  ++*at;
  return true;
}

}  // namespace

std::string prometheus_text(const Verdict& v, const std::string& version) {
  Page page(v.name);
  const bool up =
      v.state.state != RunState::kDead && v.state.state != RunState::kFinished && !v.activity.ranks.empty();
  page.one("up", "gauge", "1 when the run process is alive.", up ? 1 : 0);
  page.begin("health_state", "gauge", "0 ok, 1 warn, 2 crit, 3 unknown, by layer.");
  for (const Layer layer : {Layer::kProcess, Layer::kHardware, Layer::kConfiguration, Layer::kLearning})
    page.sample(static_cast<double>(layer_level(v, layer)), fmt::format(",layer=\"{}\"", layer_word(layer)));
  page.begin("run_state", "gauge", "1 for the state the run is in.");
  for (int s = 0; s <= static_cast<int>(RunState::kUnknownState); ++s)
    page.sample(static_cast<int>(v.state.state) == s ? 1 : 0,
                fmt::format(",state=\"{}\"", lower(state_word(static_cast<RunState>(s)))));
  if (v.step >= 0) page.one("step_total", "counter", "Training steps done.", static_cast<double>(v.step));
  if (v.total_steps > 0)
    page.one("steps_planned", "gauge", "Training steps of the whole run.",
             static_cast<double>(v.total_steps));
  const auto names = v.log.loss_names();
  if (!names.empty()) {
    page.begin("loss", "gauge", "Newest training loss by drafting step.");
    for (std::size_t k = 0; k < names.size(); ++k)
      page.sample(last_of(v, names[k].c_str()), fmt::format(",ttt=\"{}\"", k));
  }
  page.one("acceptance_length", "gauge", "Newest acceptance length, bonus token included.",
           last_of(v, "acceptance_length"));
  page.one("learning_rate", "gauge", "Newest learning rate.", last_of(v, "lr"));
  page.one("tokens_total", "counter", "Tokens trained on, where the run counts them.",
           last_of(v, "tokens_total"));
  page.one("tokens_per_second", "gauge", "Newest training speed.", last_of(v, "tokens_per_second"));
  page.one("mfu_ratio", "gauge", "Model FLOP utilisation the run reports.", last_of(v, "mfu_ratio"));
  bool any_op = false;
  for (const std::string_view op : device_ops()) {
    const double seconds = last_of(v, device_time_metric(op).c_str());
    if (std::isnan(seconds)) continue;
    if (!std::exchange(any_op, true))
      page.begin("device_step_seconds", "gauge",
                 "Time on the device of the newest measured step, by kind of op.");
    page.sample(seconds, fmt::format(",op=\"{}\"", op));
  }
  if (!std::isnan(v.state.silent_seconds) && !std::isnan(v.wall))
    page.one("last_progress_timestamp_seconds", "gauge", "When a step, checkpoint or status last moved.",
             v.wall - v.state.silent_seconds);
  page.one("cpu_cores", "gauge", "CPU cores the run's processes use.", v.activity.tree_cores);
  page.one("server_requests_running", "gauge", "Requests a watched server works on.",
           v.activity.server.running);
  page.one("server_requests_waiting", "gauge", "Requests that wait in a watched server.",
           v.activity.server.waiting);
  page.one("server_tokens_per_second", "gauge", "Tokens a watched server generates.",
           v.activity.server.generated_tokens_per_second);
  const auto devices = [&](const char* name, const char* help, double DeviceActivity::*field, double scale) {
    bool any = false;
    for (const DeviceActivity& d : v.activity.devices) any = any || !std::isnan(d.*field);
    if (!any) return;
    page.begin(name, "gauge", help);
    for (const DeviceActivity& d : v.activity.devices)
      page.sample(d.*field * scale, fmt::format(",gpu=\"{}\"", d.index));
  };
  devices("gpu_busy_ratio", "Share of the time in which a kernel ran.", &DeviceActivity::busy_pct, 0.01);
  devices("gpu_power_watts", "Power draw.", &DeviceActivity::power_w, 1);
  devices("gpu_memory_used_bytes", "Device memory in use.", &DeviceActivity::used_bytes, 1);
  page.begin("run_info", "gauge", "Constant 1; facts in labels.");
  std::string facts =
      fmt::format(",version=\"{}\",phase=\"{}\"", escaped(version, true), phase_word(v.state.phase));
  if (!std::isnan(v.ttt_steps)) facts += fmt::format(",ttt_steps=\"{:.0f}\"", v.ttt_steps);
  if (!std::isnan(v.max_seq_len)) facts += fmt::format(",max_seq_len=\"{:.0f}\"", v.max_seq_len);
  page.sample(1, facts);
  return page.take();
}

Result<std::vector<PrometheusSample>> parse_prometheus(std::string_view text) {
  std::vector<PrometheusSample> samples;
  std::set<std::string> typed, closed;
  std::string current;
  if (text.empty() || text.back() != '\n') return Status(StatusCode::kDataLoss, "the last line has no end");
  text.remove_suffix(1);
  int number_of_line = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number_of_line;
    const auto wrong = [&](const char* why) {
      return Status(StatusCode::kDataLoss, why, "line " + std::to_string(number_of_line));
    };
    if (line.empty()) continue;
    if (line.front() == '#') {
      const auto parts = words(line);
      if (parts.size() >= 4 && parts[1] == "TYPE" && !typed.insert(std::string(parts[2])).second)
        return wrong("a second TYPE of one name");
      continue;
    }
    PrometheusSample sample;
    std::size_t at = line.find_first_of("{ ");
    if (at == std::string_view::npos) return wrong("no value");
    sample.name = std::string(line.substr(0, at));
    if (!legal_name(sample.name, false)) return wrong("not a legal name");
    if (typed.count(sample.name) == 0) return wrong("a sample before its TYPE");
    if (sample.name != current && !closed.insert(sample.name).second)
      return wrong("samples of one name are not together");
    current = sample.name;
    if (line[at] == '{') {
      ++at;
      if (!read_labels(line, &at, &sample.labels)) return wrong("labels that are not well-formed");
    }
    const auto value = number(line.substr(at));
    if (!value) return wrong("not a number");
    sample.value = *value;
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::vector<PrometheusSample> read_foreign_metrics(std::string_view text,
                                                   std::initializer_list<const char*> prefixes) {
  constexpr std::size_t kMostSamples = 10000;
  std::vector<PrometheusSample> samples;
  for (std::string_view line : split(text, '\n')) {
    const bool wanted = std::any_of(prefixes.begin(), prefixes.end(),
                                    [line](const char* prefix) { return starts_with(line, prefix); });
    std::size_t at = line.find_first_of("{ ");
    if (!wanted || at == std::string_view::npos) continue;
    PrometheusSample sample;
    sample.name = std::string(line.substr(0, at));
    if (sample.name.ends_with("_bucket") || samples.size() >= kMostSamples) continue;
    if (line[at] == '{') {
      ++at;
      if (!read_labels(line, &at, &sample.labels)) continue;
    }
    std::string_view rest;
    const auto value = leading_number(trim(line.substr(at)), &rest);  // a time may follow
    if (!value) continue;
    sample.value = *value;
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace eaglet::monitor
