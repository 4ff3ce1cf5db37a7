#include "formats/reasoning.h"

#include "formats/json_field.h"

namespace eaglet {
namespace {

/// vLLM writes `reasoning` (since 0.12) or `reasoning_content` (before), others the rest.
constexpr const char* kReasoningFields[] = {"reasoning_content", "reasoning", "thinking", "thoughts",
                                            "reasoning_text"};

/// Text of a list of parts: [{"type": "reasoning.text", "text": ...}] (reasoning_details) or plain texts.
Result<std::string> joined_details(const Json& details) {
  std::string text;
  for (const Json& part : details) {
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    for (const char* name : {"text", "thinking", "summary"})
      if (const Json* value = json_field(part, name); value != nullptr && value->is_string()) {
        text += value->get_ref<const std::string&>();
        break;
      }
  }
  return text;
}

Result<std::string> field_text(const Json& turn, const char* name) {
  const Json* value = json_field(turn, name);
  if (value == nullptr) return std::string();
  if (value->is_array()) return joined_details(*value);
  if (!value->is_string())
    return bad_row(std::string("field '") + name + "' is " + json_shown(*value) + ", must be a text");
  return value->get<std::string>();
}

/// A field of thinking may carry the tags too.
std::string without_tags(const std::string& text) {
  for (const ThinkingTags& tags : known_thinking_tags())
    if (text.starts_with(tags.open) && text.ends_with(tags.close) &&
        text.size() >= tags.open.size() + tags.close.size())
      return trimmed_text(
          text.substr(tags.open.size(), text.size() - tags.open.size() - tags.close.size()));
  return text;
}

void add_reasoning(const std::string& text, std::string* reasoning, std::vector<std::string>* warnings) {
  if (text.empty() || text == *reasoning) return;
  if (!reasoning->empty()) {
    warnings->push_back("a turn has two different texts of thinking; both are kept, one after the other");
    *reasoning += "\n";
  }
  *reasoning += text;
}

}  // namespace

const std::vector<ThinkingTags>& known_thinking_tags() {
  static const std::vector<ThinkingTags> tags = {{"<think>", "</think>"},
                                                 {"<thinking>", "</thinking>"},
                                                 {"<thought>", "</thought>"},
                                                 {"<reasoning>", "</reasoning>"},
                                                 {"<seed:think>", "</seed:think>"},
                                                 {"[THINK]", "[/THINK]"},
                                                 {"<|begin_of_thought|>", "<|end_of_thought|>"},
                                                 {"\u25c1think\u25b7", "\u25c1/think\u25b7"}};
  return tags;
}

std::string trimmed_text(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<InlineThinking> split_inline_thinking(const std::string& text, bool open_in_prompt) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return std::nullopt;
  for (const ThinkingTags& tags : known_thinking_tags()) {
    std::size_t inside = 0;
    if (text.compare(first, tags.open.size(), tags.open) == 0)
      inside = first + tags.open.size();
    else if (!open_in_prompt || text.find(tags.open) != std::string::npos ||
             text.find(tags.close) == std::string::npos)
      continue;
    InlineThinking split;
    const std::size_t end = text.find(tags.close, inside);
    split.closed = end != std::string::npos;
    split.reasoning = trimmed_text(text.substr(inside, split.closed ? end - inside : std::string::npos));
    if (split.closed) split.content = trimmed_text(text.substr(end + tags.close.size()));
    return split;
  }
  return std::nullopt;
}

Result<bool> unify_reasoning(Json* turn, bool open_in_prompt, std::vector<std::string>* warnings) {
  std::string reasoning;
  for (const char* name : kReasoningFields) {
    EAGLET_ASSIGN_OR_RETURN(const std::string text, field_text(*turn, name));
    add_reasoning(without_tags(trimmed_text(text)), &reasoning, warnings);
    turn->erase(name);
  }
  if (reasoning.empty()) {  // the same thinking again, in parts
    EAGLET_ASSIGN_OR_RETURN(const std::string details, field_text(*turn, "reasoning_details"));
    reasoning = trimmed_text(details);
  }
  turn->erase("reasoning_details");
  bool open = false;
  // Some models think in several blocks one after another.
  while (const auto split = split_inline_thinking((*turn)["content"].get<std::string>(), open_in_prompt)) {
    add_reasoning(split->reasoning, &reasoning, warnings);
    (*turn)["content"] = split->content;
    open = !split->closed;
    open_in_prompt = false;
  }
  if (!reasoning.empty()) (*turn)["reasoning_content"] = reasoning;
  return open;
}

}  // namespace eaglet
