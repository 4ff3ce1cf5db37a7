#include "formats/json.h"

#include <fmt/format.h>

#include "base/files.h"

namespace eaglet {

namespace {
constexpr int kMaxDepth = 200;

bool nested_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}
}  // namespace

Result<Json> parse_json(std::string_view text) {
  if (nested_too_deep(text))
    return Status(StatusCode::kDataLoss, fmt::format("JSON nested deeper than {} levels", kMaxDepth));
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
