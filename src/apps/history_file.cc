#include "apps/history_file.h"

#include <cmath>
#include <optional>

#include "formats/json.h"
#include "monitor/text_scan.h"

namespace eaglet::apps {
namespace {

constexpr std::size_t kMostEach = 64;

void put(const char* name, double value, Json* json) {
  if (std::isfinite(value)) (*json)[name] = value;
}

double get(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_number() ? it->get<double>() : monitor::kNotKnown;
}

Json numbers(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) json.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
  return json;
}

std::vector<double> get_numbers(const Json& json, const char* name) {
  std::vector<double> values;
  const auto it = json.find(name);
  if (it == json.end() || !it->is_array() || it->size() > kMostEach) return values;
  for (const Json& value : *it)
    values.push_back(value.is_number() ? value.get<double>() : monitor::kNotKnown);
  return values;
}

/// The value whose word it is; false when there is none.
template <typename Value>
bool of_word(const Json& json, const char* name, Value last, const char* (*word)(Value), Value* value) {
  const auto it = json.find(name);
  if (it == json.end() || !it->is_string()) return false;
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (it->get<std::string>() == word(static_cast<Value>(i))) {
      *value = static_cast<Value>(i);
      return true;
    }
  return false;
}

/// Whole lines in their order, the older part thinned.
std::string thinned(const std::vector<std::string_view>& lines) {
  std::string out, before;
  const std::size_t newest = lines.size() - std::min(lines.size(), HistoryFile::kNewestLines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto moment = history_moment(lines[i]);
    if (!moment) continue;
    const bool changed = moment->words() != before;
    before = moment->words();
    if (i >= newest || i % 4 == 0 || changed) out += std::string(lines[i]) + "\n";
  }
  return out;
}

}  // namespace

std::string history_line(const HistoryMoment& moment) {
  const HistoryPoint& point = moment.point;
  Json json = {{"t", point.wall},
               {"state", monitor::state_word(moment.state)},
               {"phase", monitor::phase_word(moment.phase)},
               {"level", monitor::level_word(moment.level)},
               {"headline", moment.headline}};
  if (point.step >= 0) json["step"] = point.step;
  put("gpu_busy_pct", point.busy_pct, &json);
  put("gpu_power_w", point.power_w, &json);
  put("gpu_mem_bytes", point.used_bytes, &json);
  put("cpu_cores", point.cores, &json);
  if (!point.device_busy_pct.empty()) json["each_busy_pct"] = numbers(point.device_busy_pct);
  if (!point.device_power_w.empty()) json["each_power_w"] = numbers(point.device_power_w);
  return json_line(json);
}

std::optional<HistoryMoment> history_moment(std::string_view line) {
  const auto json = parse_json(std::string(line));
  if (!json.ok() || !json->is_object()) return std::nullopt;
  HistoryMoment moment;
  moment.point.wall = get(*json, "t");
  const bool whole =
      std::isfinite(moment.point.wall) &&
      of_word(*json, "state", monitor::RunState::kUnknownState, monitor::state_word, &moment.state) &&
      of_word(*json, "phase", monitor::Phase::kServe, monitor::phase_word, &moment.phase) &&
      of_word(*json, "level", monitor::Level::kUnknown, monitor::level_word, &moment.level);
  if (!whole) return std::nullopt;
  if (const auto it = json->find("headline"); it != json->end() && it->is_string())
    moment.headline = it->get<std::string>();
  if (const auto it = json->find("step"); it != json->end() && it->is_number_integer())
    moment.point.step = it->get<std::int64_t>();
  moment.point.busy_pct = get(*json, "gpu_busy_pct");
  moment.point.power_w = get(*json, "gpu_power_w");
  moment.point.used_bytes = get(*json, "gpu_mem_bytes");
  moment.point.cores = get(*json, "cpu_cores");
  moment.point.device_busy_pct = get_numbers(*json, "each_busy_pct");
  moment.point.device_power_w = get_numbers(*json, "each_power_w");
  if (moment.point.device_busy_pct.size() != moment.point.device_power_w.size()) {
    moment.point.device_busy_pct.clear();
    moment.point.device_power_w.clear();
  }
  return moment;
}

Result<std::unique_ptr<HistoryFile>> HistoryFile::open(const std::string& path, WatchHistory* history) {
  std::string text;
  if (path_exists(path)) {
    EAGLET_ASSIGN_OR_RETURN(text, read_file(path));
    if (const auto lines = monitor::split(text, '\n'); lines.size() > kMostLines) {
      text = thinned(lines);
      EAGLET_RETURN_IF_ERROR(write_file_atomic(path, text));
    }
  }
  double newest = -1e18;
  bool any = false, strange = false;
  for (const std::string_view line : monitor::split(text, '\n')) {
    const auto moment = history_moment(line);
    strange = strange || (!moment && !line.empty());
    any = any || moment;
    if (!moment || moment->point.wall < newest) continue;  // a clock that was set back
    newest = moment->point.wall;
    history->add(*moment);
  }
  // Somebody's file that is no history is not written into.
  if (strange && !any)
    return Status(StatusCode::kDataLoss, "it holds no history of a watcher", path, "give another file");
  EAGLET_ASSIGN_OR_RETURN(LineAppender file, LineAppender::open(path));
  return std::unique_ptr<HistoryFile>(new HistoryFile(std::move(file)));
}

Status HistoryFile::add(const HistoryMoment& moment) {
  const std::string words = moment.words();
  if (words == words_ && moment.point.wall - written_ < kEverySeconds) return {};
  words_ = words;
  written_ = moment.point.wall;
  return file_.append(history_line(moment));
}

}  // namespace eaglet::apps
