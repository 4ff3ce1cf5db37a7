#include "formats/talk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "base/hash.h"
#include "formats/json_field.h"
#include "formats/reasoning.h"
#include "formats/tool_calls.h"

namespace eaglet {
namespace {

/// Roles as the sources write them. "function_call" is a turn of the assistant that only calls.
const std::map<std::string, std::string>& role_names() {
  static const std::map<std::string, std::string> names = {{"system", "system"},
                                                           {"developer", "system"},
                                                           {"user", "user"},
                                                           {"human", "user"},
                                                           {"prompter", "user"},
                                                           {"assistant", "assistant"},
                                                           {"gpt", "assistant"},
                                                           {"chatgpt", "assistant"},
                                                           {"bot", "assistant"},
                                                           {"model", "assistant"},
                                                           {"tool", "tool"},
                                                           {"function", "tool"},
                                                           {"observation", "tool"},
                                                           {"ipython", "tool"},
                                                           {"tool_response", "tool"},
                                                           {"function_response", "tool"},
                                                           {"function_call", "calling"},
                                                           {"tool_call", "calling"}};
  return names;
}

Result<std::string> plain_role(const Json& turn, std::size_t number) {
  const Json* role = json_field(turn, "role");
  if (role == nullptr) role = json_field(turn, "from");
  if (role == nullptr || !role->is_string())
    return bad_row(fmt::format("turn {} is a turn without a role", number));
  std::string name = role->get<std::string>();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto known = role_names().find(name);
  if (known == role_names().end())
    return bad_row(fmt::format("turn {} has the unknown role {}", number, json_shown(*role)));
  return known->second;
}

/// Content as one text; thinking that comes as a part goes to `reasoning`. null counts as empty.
Result<std::string> plain_content(const Json& turn, std::size_t number, std::string* reasoning) {
  const Json* content = json_field(turn, "content");
  if (content == nullptr) content = json_field(turn, "value");
  if (content == nullptr) return std::string();
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array())
    return bad_row(fmt::format("turn {} has content that is no text: {}", number, json_shown(*content)));
  std::string joined;
  for (const Json& part : *content) {
    if (part.is_string()) {
      joined += part.get_ref<const std::string&>();
      continue;
    }
    const Json* type = json_field(part, "type");
    const bool thinks = type != nullptr && (*type == "thinking" || *type == "reasoning");
    const Json* text = json_field(part, "text");
    if (text == nullptr && thinks) text = json_field(part, "thinking");
    if (text == nullptr || !text->is_string())
      return bad_row(fmt::format("turn {} has a content part that is no text{}", number,
                                 type != nullptr ? ": type " + json_shown(*type) : ""));
    (thinks ? *reasoning : joined) += text->get_ref<const std::string&>();
  }
  return joined;
}

/// Calls that are waiting for their results.
class OpenCalls {
 public:
  void called(const Json& calls) {
    ids_.clear();
    seen_ = true;
    for (const Json& call : calls)
      if (const Json* id = json_field(call, "id")) ids_.insert(id->get<std::string>());
  }
  void answered(const Json& turn, std::size_t number, std::vector<std::string>* warnings) const {
    const Json* id = json_field(turn, "tool_call_id");
    if (!seen_)
      warnings->push_back(fmt::format("turn {} is a tool's result, and no call was made before it", number));
    else if (id != nullptr && id->is_string() && !ids_.contains(id->get<std::string>()))
      warnings->push_back(fmt::format("turn {} is the result of the tool call {}, which nobody made", number,
                                      json_shown(*id)));
  }

 private:
  std::set<std::string> ids_;
  bool seen_ = false;
};

Result<Json> assistant_turn(const Json& turn, std::string content, std::string reasoning, bool only_calls,
                            std::size_t number, std::vector<std::string>* warnings) {
  const auto at_turn = [number](const Status& status) {
    return bad_row(fmt::format("turn {}: {}", number, status.what()));
  };
  Json plain = {{"role", "assistant"}, {"content", only_calls ? std::string() : content}};
  for (const auto& [key, value] : turn.items())
    if (key != "role" && key != "from" && key != "content" && key != "value" && key != "tool_calls" &&
        key != "function_call" && !value.is_null())
      plain[key] = value;
  if (!reasoning.empty() && !plain.contains("reasoning_content")) plain["reasoning_content"] = reasoning;
  const Result<bool> open = unify_reasoning(&plain, false, warnings);
  if (!open.ok()) return at_turn(open.status());
  if (*open) return bad_row(fmt::format("the thinking of turn {} has no end: the answer was cut", number));
  Result<Json> calls = only_calls ? tool_calls_of_text(content) : plain_tool_calls(turn);
  if (!calls.ok()) return at_turn(calls.status());
  if (!calls->empty()) plain["tool_calls"] = std::move(*calls);
  if (!plain.contains("tool_calls") && trimmed_text(plain["content"].get<std::string>()).empty())
    return bad_row(fmt::format("turn {} of the assistant says nothing: no content and no tool call", number));
  return plain;
}

}  // namespace

bool has_turns(const Json& row) {
  return json_field(row, "messages") != nullptr || json_field(row, "conversations") != nullptr ||
         json_field(row, "conversation") != nullptr || json_field(row, "prompt") != nullptr;
}

Result<Json> plain_turns(const Json& turns, std::vector<std::string>* warnings) {
  Json plain = Json::array();
  OpenCalls calls;
  for (const Json& turn : turns) {
    const std::size_t number = plain.size() + 1;
    if (!turn.is_object()) return bad_row(fmt::format("turn {} is {}", number, json_shown(turn)));
    EAGLET_ASSIGN_OR_RETURN(const std::string role, plain_role(turn, number));
    std::string reasoning;
    Result<std::string> content = plain_content(turn, number, &reasoning);
    if (!content.ok() && role == "tool" && json_field(turn, "content") != nullptr)
      content = json_line(turn["content"]);  // a result given as an object
    if (!content.ok()) return content.status();
    if (role == "assistant" || role == "calling") {
      EAGLET_ASSIGN_OR_RETURN(Json said,
                              assistant_turn(turn, *content, reasoning, role == "calling", number, warnings));
      if (said.contains("tool_calls")) calls.called(said["tool_calls"]);
      plain.push_back(std::move(said));
      continue;
    }
    const Json* given = json_field(turn, "content");
    if (given == nullptr && json_field(turn, "value") == nullptr)
      return bad_row(fmt::format("turn {} has no content", number));
    Json copy = {{"role", role}, {"content", *content}};
    for (const auto& [key, value] : turn.items())
      if (key != "role" && key != "from" && key != "content" && key != "value" && !value.is_null())
        copy[key] = value;
    if (role == "tool") calls.answered(copy, number, warnings);
    plain.push_back(std::move(copy));
  }
  return plain;
}

Result<Talk> read_talk(const Json& row) {
  Talk talk;
  const char* name = "messages";
  const Json* turns = nullptr;
  for (const char* candidate : {"messages", "conversations", "conversation", "prompt"})
    if (turns == nullptr && (turns = json_field(row, candidate)) != nullptr) name = candidate;
  if (turns == nullptr) return bad_row("field 'messages' is missing (and there are no 'conversations')");
  Json list = *turns;
  if (std::string(name) == "prompt" && turns->is_string())
    list = Json::array({{{"role", "user"}, {"content", *turns}}});
  if (!list.is_array())
    return bad_row(fmt::format("field '{}' is {}, must be a list of turns", name, json_shown(*turns)));
  if (list.empty()) return bad_row(fmt::format("field '{}' is empty", name));
  Result<Json> plain = plain_turns(list, &talk.warnings);
  if (!plain.ok()) return bad_row(fmt::format("field '{}' {}", name, plain.status().what()));
  talk.messages = std::move(*plain);
  EAGLET_ASSIGN_OR_RETURN(talk.tools, plain_tools(row));
  return talk;
}

std::string talk_hash(const Json& messages, const Json& tools) {
  return hex64(xxh64(json_line(messages) + "\n" + json_line(tools)));
}

bool has_answer(const Json& messages) {
  bool asked = false;
  for (const Json& turn : messages) {
    const auto& role = turn["role"].get_ref<const std::string&>();
    if (role == "assistant" && asked) return true;
    if (role == "user" || role == "tool") asked = true;
  }
  return false;
}

}  // namespace eaglet
