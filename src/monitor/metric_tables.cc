#include "monitor/metric_tables.h"

#include <fmt/format.h>

#include <cmath>

#include "base/files.h"
#include "formats/json.h"
#include "monitor/log_reader.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr double kMostBytes = 64e6;

/// The newest file of a name; nullptr when there is none of a sensible size.
const FileView* newest(const std::vector<FileView>& files, std::string_view name) {
  const FileView* found = nullptr;
  for (const FileView& file : files)
    if (file.path.ends_with(name) && file.bytes < kMostBytes &&
        (found == nullptr || file.mtime > found->mtime))
      found = &file;
  return found;
}

}  // namespace

LogFacts facts_of_csv(const std::string& text) {
  LogReader reader;
  std::vector<std::string> columns;
  std::int64_t row = 0;
  std::size_t from = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       from = end + 1, end = text.find('\n', from)) {
    const auto cells = split(trim(std::string_view(text).substr(from, end - from)), ',');
    if (columns.empty()) {
      for (const std::string_view cell : cells) columns.emplace_back(trim(cell));
      continue;
    }
    std::int64_t step = row++;
    std::vector<std::pair<std::string, double>> scalars;
    for (std::size_t i = 0; i < cells.size() && i < columns.size(); ++i) {
      const auto value = number(trim(cells[i]));
      if (!value) continue;
      if (columns[i] == "step" && *value >= 0 && *value < 9e15)
        step = static_cast<std::int64_t>(*value);
      else if (columns[i] != "step")
        scalars.emplace_back(columns[i], *value);
    }
    reader.add_scalars(step, kNotKnown, scalars);
  }
  return reader.facts();
}

LogFacts facts_of_trainer_state(const std::string& text) {
  LogReader reader;
  const auto json = parse_json(text);
  if (!json.ok() || !json->is_object()) return reader.facts();
  const Json history = json->value("log_history", Json::array());
  if (!history.is_array()) return reader.facts();
  for (const Json& entry : history) {
    if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer()) continue;
    std::vector<std::pair<std::string, double>> scalars;
    for (const auto& [name, value] : entry.items())
      if (value.is_number() && name != "step") scalars.emplace_back(name, value.get<double>());
    reader.add_scalars(entry["step"].get<std::int64_t>(), kNotKnown, scalars);
  }
  LogFacts facts = reader.facts();
  if (const Json total = json->value("max_steps", Json(nullptr)); total.is_number_integer())
    facts.total_steps = std::max<std::int64_t>(0, total.get<std::int64_t>());
  return facts;
}

void MetricTables::poll(const std::vector<FileView>& files) {
  const FileView* csv = newest(files, "/metrics.csv");
  const FileView* state = newest(files, "/trainer_state.json");
  const FileView* file = csv != nullptr && (state == nullptr || csv->mtime >= state->mtime) ? csv : state;
  if (file == nullptr) return;
  const std::string key = fmt::format("{} {} {}", file->path, file->mtime, file->bytes);
  if (key == read_) return;
  const auto text = read_file(file->path);
  if (!text.ok()) return;
  read_ = key;
  facts_ = file == csv ? facts_of_csv(*text) : facts_of_trainer_state(*text);
}

}  // namespace eaglet::monitor
