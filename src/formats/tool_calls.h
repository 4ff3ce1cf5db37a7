#pragma once

#include <string>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// Tool calls in one shape, [{"id", "type": "function", "function": {"name", "arguments": {...}}}], from a
/// turn's `tool_calls` (arguments as text or object, with or without the "function" around them) or its
/// `function_call`; an empty list when it has none. Order is kept. kDataLoss: a call without name, arguments
/// that are not a JSON object.
Result<Json> plain_tool_calls(const Json& turn);
/// The same from a text of one call or a list of calls ({"name": ..., "arguments": ...}), as from/value rows
/// have it.
Result<Json> tool_calls_of_text(const std::string& text);

/// The calls as a request to a server wants them: arguments as text.
Json with_text_arguments(Json messages);

/// A row's `tools` as a list: a list, or a text that holds one. null when there are none.
Result<Json> plain_tools(const Json& row);

}  // namespace eaglet
