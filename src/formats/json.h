#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace eaglet {

/// Keys keep their order, so written files read like the code that wrote them.
using Json = nlohmann::ordered_json;

/// kDataLoss with the byte position when the text is not JSON. Nesting beyond 200 levels is refused: whoever
/// walks such a value (dump() does, by recursion) would run out of stack.
Result<Json> parse_json(std::string_view text);
/// read_file + parse_json; the path is in the error.
Result<Json> read_json_file(const std::string& path);
/// Pretty-printed, final newline, atomic. Invalid UTF-8 is replaced, NaN becomes null.
Status write_json_file(const std::string& path, const Json& value);
/// One line without newline; invalid UTF-8 is replaced by U+FFFD instead of throwing.
std::string json_line(const Json& value);

}  // namespace eaglet
