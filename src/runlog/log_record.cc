#include "runlog/log_record.h"

#include <cmath>
#include <utility>

#include "base/files.h"
#include "formats/json.h"

namespace eaglet {
namespace {

struct NumberField {
  const char* name;
  double LogRecord::*at;
};
struct ArrayField {
  const char* name;
  std::vector<double> LogRecord::*at;
};
// One table for writer and reader, in the order of the line.
constexpr ArrayField kArrays[] = {
    {"loss", &LogRecord::loss}, {"full_acc", &LogRecord::full_acc}, {"cond_acc", &LogRecord::cond_acc}};
constexpr NumberField kNumbers[] = {{"total_loss", &LogRecord::total_loss},
                                    {"outside_share", &LogRecord::outside_share},
                                    {"supervised_tokens", &LogRecord::supervised_tokens},
                                    {"acceptance_length", &LogRecord::acceptance_length},
                                    {"lr", &LogRecord::lr},
                                    {"grad_norm", &LogRecord::grad_norm},
                                    {"tokens_per_second", &LogRecord::tokens_per_second},
                                    {"tokens_total", &LogRecord::tokens_total},
                                    {"step_seconds", &LogRecord::step_seconds},
                                    {"data_wait_seconds", &LogRecord::data_wait_seconds},
                                    {"fill_ratio", &LogRecord::fill_ratio},
                                    {"mfu_ratio", &LogRecord::mfu_ratio}};

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

double number_or_none(const Json& value) {
  return value.is_number() ? value.get<double>() : LogRecord::kNone;
}

Json array(const std::vector<double>& values) {
  Json list = Json::array();
  for (double value : values) list.push_back(number(value));
  return list;
}

Status not_a_record(const std::string& why) {
  return Status(StatusCode::kDataLoss, "not a run-log record: " + why, {},
                "docs/formats/runlog.md shows what a line looks like");
}

}  // namespace

std::string log_line(const LogRecord& record) {
  Json line;
  line["t"] = number(record.t);
  line["event"] = record.event;
  line["step"] = record.step;
  line["epoch"] = record.epoch;
  for (const ArrayField& field : kArrays)
    if (!(record.*field.at).empty()) line[field.name] = array(record.*field.at);
  // A training step always has all numbers, so that every step line has the same fields.
  const bool all = record.event == "step";
  for (const NumberField& field : kNumbers) {
    const double value = record.*field.at;
    if (all || !std::isnan(value)) line[field.name] = number(value);
  }
  for (const auto& [op, seconds] : record.device_seconds) line["device_seconds"][op] = number(seconds);
  if (!record.message.empty()) line["message"] = record.message;
  return json_line(line);
}

Result<LogRecord> parse_log_line(std::string_view text) {
  EAGLET_ASSIGN_OR_RETURN(const Json line, parse_json(text));
  if (!line.is_object()) return not_a_record("it is no object");
  const auto event = line.find("event");
  if (event == line.end() || !event->is_string()) return not_a_record("it has no event");
  const auto t = line.find("t");
  if (t == line.end() || !t->is_number()) return not_a_record("it has no time t");
  LogRecord record;
  record.t = t->get<double>();
  record.event = event->get<std::string>();
  for (auto [name, at] : {std::pair{"step", &record.step}, std::pair{"epoch", &record.epoch}})
    if (const auto it = line.find(name); it != line.end() && it->is_number_integer())
      *at = it->get<std::int64_t>();
  for (const ArrayField& field : kArrays) {
    const auto it = line.find(field.name);
    if (it == line.end() || !it->is_array()) continue;
    for (const Json& value : *it) (record.*field.at).push_back(number_or_none(value));
  }
  for (const NumberField& field : kNumbers)
    if (const auto it = line.find(field.name); it != line.end()) record.*field.at = number_or_none(*it);
  if (const auto it = line.find("device_seconds"); it != line.end() && it->is_object())
    for (const auto& [op, seconds] : it->items())
      record.device_seconds.emplace_back(op, number_or_none(seconds));
  if (const auto it = line.find("message"); it != line.end() && it->is_string())
    record.message = it->get<std::string>();
  return record;
}

Result<LogFile> read_log(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  LogFile file;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) {
      file.half_last_line = true;
      break;
    }
    Result<LogRecord> record = parse_log_line(std::string_view(text).substr(at, end - at));
    if (record.ok())
      file.records.push_back(std::move(*record));
    else
      ++file.broken_lines;
    at = end + 1;
  }
  return file;
}

std::vector<LogRecord> effective_records(const std::vector<LogRecord>& records) {
  std::vector<LogRecord> kept;
  for (const LogRecord& record : records) {
    if (record.event == "start" || record.event == "resume") {
      std::erase_if(kept, [&](const LogRecord& earlier) {
        const bool redone =
            earlier.event == "step" || earlier.event == "validation" || earlier.event == "checkpoint";
        return redone && earlier.step >= record.step;
      });
    }
    kept.push_back(record);
  }
  return kept;
}

}  // namespace eaglet
