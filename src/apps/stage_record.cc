#include "apps/stage_record.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"

namespace eaglet::apps {
namespace {

void add_differences(const Json& before, const Json& now, std::string* out) {
  for (const auto& [key, value] : now.items()) {
    const std::string was = before.contains(key) ? before[key].get<std::string>() : "not there";
    if (was == value.get<std::string>()) continue;
    if (!out->empty()) *out += "; ";
    *out += fmt::format("{} was {}, is {}", key, was, value.get<std::string>());
  }
}

}  // namespace

std::string StageRecord::fingerprint() const {
  return hex64(xxh64(stage + settings.dump() + inputs.dump()));
}

std::string StageRecord::difference(const StageRecord& now) const {
  std::string out;
  add_differences(settings, now.settings, &out);
  add_differences(inputs, now.inputs, &out);
  return out;
}

Result<StageRecord> read_stage_record(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  try {
    StageRecord record;
    record.stage = json.at("stage").get<std::string>();
    record.done = json.at("state") == "done";
    record.settings = json.at("settings");
    record.inputs = json.at("inputs");
    record.seconds = json.at("seconds").get<double>();
    record.finished = json.at("finished").is_null() ? 0 : json.at("finished").get<double>();
    record.result = json.at("result");
    return record;
  } catch (const Json::exception& error) {
    return Status(StatusCode::kDataLoss, std::string("not a stage record: ") + error.what(), path,
                  "delete it: the stage is then done again");
  }
}

Status write_stage_record(const std::string& path, const StageRecord& record) {
  return write_json_file(
      path, Json{{"schema", 1},
                 {"stage", record.stage},
                 {"state", record.done ? "done" : "begun"},
                 {"settings", record.settings},
                 {"inputs", record.inputs},
                 {"seconds", record.seconds},
                 {"finished", record.done ? Json(record.finished) : Json(nullptr)},
                 {"finished_time", record.done ? Json(rfc3339_utc(record.finished)) : Json(nullptr)},
                 {"result", record.result}});
}

}  // namespace eaglet::apps
