#include "formats/json.h"

#include <fmt/format.h>

#include "base/files.h"

namespace eaglet {

Result<Json> parse_json(std::string_view text) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    return Status(StatusCode::kDataLoss, fmt::format("not valid JSON (at byte {})", error.byte));
  } catch (const Json::exception& error) {  // for example a number that no double holds
    return Status(StatusCode::kDataLoss, fmt::format("not usable JSON ({})", error.what()));
  }
}

Result<Json> read_json_file(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(std::string text, read_file(path));
  auto value = parse_json(text);
  if (!value.ok()) return value.status().at(path);
  return value;
}

Status write_json_file(const std::string& path, const Json& value) {
  return write_file_atomic(path, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace eaglet
