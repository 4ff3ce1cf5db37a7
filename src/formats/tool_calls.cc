#include "formats/tool_calls.h"

#include <fmt/format.h>

#include "formats/json_field.h"
#include "formats/reasoning.h"

namespace eaglet {
namespace {

Result<Json> plain_arguments(const Json* arguments, std::size_t number) {
  if (arguments == nullptr) return Json(Json::object());
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string())
    return bad_row(fmt::format("arguments of tool call {} are {}, must be an object or its text", number,
                               json_shown(*arguments)));
  const std::string text = arguments->get<std::string>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json(Json::object());
  auto parsed = parse_json(text);
  if (!parsed.ok() || !parsed->is_object())
    return bad_row(
        fmt::format("arguments of tool call {} are not valid JSON: {}", number, json_shown(*arguments)));
  return std::move(*parsed);
}

Result<Json> plain_call(const Json& call, std::size_t number) {
  if (!call.is_object()) return bad_row(fmt::format("tool call {} is {}", number, json_shown(call)));
  const Json* inner = json_field(call, "function");
  const Json& function = inner != nullptr && inner->is_object() ? *inner : call;
  const Json* name = json_field(function, "name");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty())
    return bad_row(fmt::format("tool call {} has no function name", number));
  const Json* given = json_field(function, "arguments");
  if (given == nullptr) given = json_field(function, "parameters");
  EAGLET_ASSIGN_OR_RETURN(Json arguments, plain_arguments(given, number));
  Json plain = Json::object();
  if (const Json* id = json_field(call, "id"); id != nullptr && id->is_string()) plain["id"] = *id;
  plain["type"] = "function";
  plain["function"] = {{"name", *name}, {"arguments", std::move(arguments)}};
  return plain;
}

Result<Json> plain_list(const Json& calls) {
  Json list = Json::array();
  for (const Json& call : calls) {
    EAGLET_ASSIGN_OR_RETURN(Json plain, plain_call(call, list.size() + 1));
    list.push_back(std::move(plain));
  }
  return list;
}

}  // namespace

Result<Json> plain_tool_calls(const Json& turn) {
  if (const Json* calls = json_field(turn, "tool_calls")) {
    if (calls->is_string()) return tool_calls_of_text(calls->get<std::string>());
    if (!calls->is_array())
      return bad_row("field 'tool_calls' is " + json_shown(*calls) + ", must be a list");
    return plain_list(*calls);
  }
  if (const Json* call = json_field(turn, "function_call")) return plain_list(Json::array({*call}));
  return Json(Json::array());
}

Result<Json> tool_calls_of_text(const std::string& text) {
  auto parsed = parse_json(text);
  if (!parsed.ok() || !(parsed->is_object() || parsed->is_array()))
    return bad_row("a tool call is not valid JSON: " + json_shown(text));
  return plain_list(parsed->is_array() ? *parsed : Json::array({*parsed}));
}

Json with_text_arguments(Json messages) {
  for (Json& turn : messages) {
    if (json_field(turn, "tool_calls") == nullptr) continue;
    for (Json& call : turn["tool_calls"]) {
      Json& arguments = call["function"]["arguments"];
      if (!arguments.is_string()) arguments = json_line(arguments);
    }
  }
  return messages;
}

Result<Json> plain_tools(const Json& row) {
  const Json* tools = json_field(row, "tools");
  if (tools == nullptr) return Json();
  Json list = *tools;
  if (tools->is_string()) {
    if (trimmed_text(tools->get_ref<const std::string&>()).empty()) return Json();
    auto parsed = parse_json(tools->get<std::string>());
    if (!parsed.ok()) return bad_row("field 'tools' is a text that is not valid JSON");
    list = std::move(*parsed);
  }
  if (list.is_null() || (list.is_array() && list.empty())) return Json();
  if (!list.is_array()) return bad_row("field 'tools' is " + json_shown(list) + ", must be a list");
  for (Json& tool : list) {
    if (!tool.is_object()) return bad_row("field 'tools' holds " + json_shown(tool));
    if (json_field(tool, "function") == nullptr) tool = {{"type", "function"}, {"function", tool}};
  }
  return list;
}

}  // namespace eaglet
