#include "runlog/status_file.h"

#include <cerrno>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "base/files.h"
#include "base/host_name.h"
#include "formats/json.h"

namespace eaglet {
namespace {

constexpr int kSchema = 1;

Json to_json(const RunStatus& status) {
  Json json;
  json["schema"] = kSchema;
  json["pid"] = status.pid;
  json["host"] = host_name();
  json["start_time"] = status.start_time;
  json["run_id"] = status.run_id;
  json["phase"] = status.phase;
  json["step"] = status.step;
  json["total"] = status.total;
  json["last_loss"] = std::isfinite(status.last_loss) ? Json(status.last_loss) : Json(nullptr);
  json["tokens_per_second"] = status.tokens_per_second;
  for (const auto& [op, seconds] : status.device_seconds) json["device_seconds"][op] = seconds;
  json["next_by"] = status.next_by > 0 ? Json(status.next_by) : Json(nullptr);
  json["updated"] = wall_seconds();
  return json;
}

Status write_renamed(const std::string& path, const std::string& content) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "wbe");
  if (file == nullptr) return errno_status("create the file", temporary, errno);
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const int write_error = errno;
  if (std::fclose(file) != 0) return errno_status("write", temporary, errno);
  if (!written) return errno_status("write", temporary, write_error);
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    return errno_status("rename " + temporary, path, errno);
  return {};
}

}  // namespace

StatusFile::StatusFile(const std::string& directory) : path_(directory + "/status.json") {}

Status StatusFile::update(const RunStatus& status) {
  const double now = monotonic_seconds();
  if (status.phase == last_phase_ && last_write_ >= 0 && now - last_write_ < 1.0) return {};
  last_write_ = now;
  last_phase_ = status.phase;
  return write_renamed(path_, to_json(status).dump(1) + "\n");
}

Result<RunStatus> read_status(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(path));
  RunStatus status;
  try {
    if (json.at("schema").get<int>() != kSchema)
      return Status(StatusCode::kDataLoss, "status file of another schema", path,
                    "read it with a newer eaglet");
    status.pid = json.at("pid").get<std::int64_t>();
    status.start_time = json.at("start_time").get<double>();
    status.host = json.value("host", std::string());
    status.run_id = json.at("run_id").get<std::string>();
    status.phase = json.at("phase").get<std::string>();
    status.step = json.at("step").get<std::int64_t>();
    status.total = json.at("total").get<std::int64_t>();
    status.last_loss = json.at("last_loss").is_null() ? std::nan("") : json.at("last_loss").get<double>();
    status.tokens_per_second = json.at("tokens_per_second").get<double>();
    if (const auto it = json.find("device_seconds"); it != json.end() && it->is_object())
      for (const auto& [op, seconds] : it->items())
        if (seconds.is_number()) status.device_seconds.emplace_back(op, seconds.get<double>());
    status.next_by = json.at("next_by").is_null() ? 0 : json.at("next_by").get<double>();
  } catch (const Json::exception& error) {
    return Status(StatusCode::kDataLoss, std::string("not a status file of ours: ") + error.what(), path);
  }
  return status;
}

}  // namespace eaglet
