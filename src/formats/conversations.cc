#include "formats/conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <unordered_set>

#include "base/files.h"

namespace eaglet {
namespace {

Status bad(const std::string& what) {
  return Status(StatusCode::kDataLoss, what);
}

/// A value as it may stand in an error line: short, never throwing on odd bytes.
std::string shown(const Json& value) {
  std::string text = json_line(value);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

Result<Json> parse_row(std::string_view line) {
  EAGLET_ASSIGN_OR_RETURN(Json row, parse_json(line));
  if (!row.is_object()) return bad("the line is not a JSON object");
  return row;
}

/// nullptr when the field is absent or null.
const Json* field(const Json& row, const char* name) {
  const auto it = row.find(name);
  return it == row.end() || it->is_null() ? nullptr : &*it;
}

Result<std::string> read_id(const Json& row) {
  const Json* id = field(row, "id");
  if (id == nullptr) return bad("field 'id' is missing");
  if (id->is_number_integer()) return id->dump();
  if (!id->is_string()) return bad("field 'id' is " + shown(*id) + ", must be a text");
  if (id->get_ref<const std::string&>().empty()) return bad("field 'id' is empty");
  return id->get<std::string>();
}

Result<std::string> read_text(const Json& row, const char* name) {
  const Json* value = field(row, name);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return bad(fmt::format("field '{}' is {}, must be a text", name, shown(*value)));
  return value->get<std::string>();
}

bool whole_number_in(const Json& value, std::int64_t low, std::int64_t high, std::int64_t* number) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high))
    return false;
  *number = value.get<std::int64_t>();
  return *number >= low && *number <= high;
}

Result<std::vector<std::int32_t>> read_ids(const Json& row, const char* name) {
  const Json* values = field(row, name);
  if (values == nullptr) return bad(fmt::format("field '{}' is missing", name));
  if (!values->is_array())
    return bad(fmt::format("field '{}' is {}, must be a list of token ids", name, shown(*values)));
  std::vector<std::int32_t> ids;
  ids.reserve(values->size());
  for (const Json& value : *values) {
    std::int64_t id = 0;
    if (!whole_number_in(value, 0, std::numeric_limits<std::int32_t>::max(), &id))
      return bad(fmt::format("field '{}' entry {} is {}, must be a whole number from 0 to 2147483647", name,
                             ids.size(), shown(value)));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

Result<std::vector<std::uint8_t>> read_mask(const Json& row, std::size_t tokens) {
  const Json* values = field(row, "loss_mask");
  if (values == nullptr) return bad("field 'loss_mask' is missing");
  if (!values->is_array())
    return bad("field 'loss_mask' is " + shown(*values) + ", must be a list of 0 and 1");
  if (values->size() != tokens)
    return bad(
        fmt::format("field 'loss_mask' has {} entries but 'input_ids' has {}", values->size(), tokens));
  std::vector<std::uint8_t> mask;
  mask.reserve(tokens);
  for (const Json& value : *values) {
    std::int64_t bit = 0;
    if (!whole_number_in(value, 0, 1, &bit))
      return bad(fmt::format("field 'loss_mask' entry {} is {}, must be 0 or 1", mask.size(), shown(value)));
    mask.push_back(static_cast<std::uint8_t>(bit));
  }
  return mask;
}

Result<std::string> read_finish_reason(const Json& row) {
  EAGLET_ASSIGN_OR_RETURN(std::string reason, read_text(row, "finish_reason"));
  if (!reason.empty()) {
    if (reason == "stop" || reason == "length") return reason;
    return bad("field 'finish_reason' is " + shown(reason) + ", must be \"stop\" or \"length\"");
  }
  EAGLET_ASSIGN_OR_RETURN(std::string stop, read_text(row, "stop"));
  if (stop.empty()) return std::string();
  if (stop == "eos") return std::string("stop");
  if (stop == "limit") return std::string("length");
  return bad("field 'stop' is " + shown(stop) + ", must be \"eos\" or \"limit\"");
}

Status read_tokens(const Json& row, Conversation* to) {
  if (field(row, "input_ids") != nullptr) {
    EAGLET_ASSIGN_OR_RETURN(to->input_ids, read_ids(row, "input_ids"));
    EAGLET_ASSIGN_OR_RETURN(to->loss_mask, read_mask(row, to->input_ids.size()));
  } else if (field(row, "prompt_ids") != nullptr) {
    EAGLET_ASSIGN_OR_RETURN(to->input_ids, read_ids(row, "prompt_ids"));
    EAGLET_ASSIGN_OR_RETURN(std::vector<std::int32_t> response, read_ids(row, "response_ids"));
    to->loss_mask.assign(to->input_ids.size(), 0);
    to->input_ids.insert(to->input_ids.end(), response.begin(), response.end());
    to->loss_mask.resize(to->input_ids.size(), 1);
  } else {
    return bad("field 'input_ids' is missing (and there are no 'prompt_ids' and 'response_ids' instead)");
  }
  if (to->input_ids.empty()) return bad("the row has no tokens");
  return {};
}

Result<Json> read_messages(const Json& row) {
  const Json* messages = field(row, "messages");
  if (messages == nullptr) return Json();
  if (!messages->is_array()) return bad("field 'messages' is " + shown(*messages) + ", must be a list");
  for (const Json& turn : *messages)
    if (!turn.is_object() || !turn.contains("role") || !turn["role"].is_string())
      return bad("field 'messages' holds a turn without a role");
  return *messages;
}

/// Content as one text: a string, or a list of {"type": "text", "text": ...} parts joined in order.
Result<std::string> plain_content(const Json& turn, std::size_t number) {
  const Json* content = field(turn, "content");
  if (content == nullptr) return bad(fmt::format("field 'messages' turn {} has no content", number));
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array())
    return bad(fmt::format("field 'messages' turn {} has content that is no text", number));
  std::string joined;
  for (const Json& part : *content) {
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string())
      return bad(fmt::format("field 'messages' turn {} has a content part that is no text", number));
    joined += part["text"].get_ref<const std::string&>();
  }
  return joined;
}

Result<Json> plain_messages(const Json& messages) {
  Json plain = Json::array();
  for (const Json& turn : messages) {
    std::string role = turn["role"].get<std::string>();
    std::transform(role.begin(), role.end(), role.begin(), [](unsigned char c) { return std::tolower(c); });
    if (role != "system" && role != "user" && role != "assistant" && role != "tool")
      return bad("field 'messages' has the unknown role " + shown(turn["role"]));
    EAGLET_ASSIGN_OR_RETURN(std::string content, plain_content(turn, plain.size()));
    Json copy = turn;
    copy["role"] = role;
    copy["content"] = content;
    plain.push_back(std::move(copy));
  }
  return plain;
}

/// Walks the lines of a file: `use(line)` says what is wrong with one, or takes it in. Only '\n' ends a line
/// (U+2028 and friends are text); a '\r' before it is white space to the JSON parser.
template <class File, class Use>
Status read_lines(const std::string& path, const char* what_a_line_is, File* file, const Use& use) {
  EAGLET_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  std::string_view rest(reinterpret_cast<const char*>(mapped.data()), mapped.bytes());
  std::uint64_t used = 0;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    ++file->lines;
    if (line.find_first_not_of(" \t\r") == line.npos) {
      ++file->blank_lines;
      continue;
    }
    const Status problem = use(line);
    if (problem.ok())
      ++used;
    else if (end == line.npos)
      file->broken.push_back(
          {file->lines, problem.what() + "; the last line has no end: its writer was stopped there"});
    else
      file->broken.push_back({file->lines, problem.what()});
  }
  if (used > 0) return {};
  if (file->broken.empty())
    return Status(StatusCode::kDataLoss, fmt::format("the file holds no {}", what_a_line_is), path,
                  fmt::format("give a file with one {} per line", what_a_line_is));
  return Status(StatusCode::kDataLoss,
                fmt::format("none of the {} lines is a usable {}; line {}: {}", file->broken.size(),
                            what_a_line_is, file->broken.front().line, file->broken.front().reason),
                path, "see docs/formats/conversations.md for the fields a line needs");
}

Status duplicate(const std::string& id) {
  return bad("the id " + shown(id) + " was used by an earlier line");
}

}  // namespace

std::int64_t Conversation::prompt_tokens() const {
  return std::find(loss_mask.begin(), loss_mask.end(), 1) - loss_mask.begin();
}

Result<Conversation> parse_conversation(std::string_view line) {
  EAGLET_ASSIGN_OR_RETURN(Json row, parse_row(line));
  Conversation conversation;
  EAGLET_ASSIGN_OR_RETURN(conversation.id, read_id(row));
  EAGLET_RETURN_IF_ERROR(read_tokens(row, &conversation));
  EAGLET_ASSIGN_OR_RETURN(conversation.finish_reason, read_finish_reason(row));
  EAGLET_ASSIGN_OR_RETURN(conversation.messages, read_messages(row));
  EAGLET_ASSIGN_OR_RETURN(conversation.text, read_text(row, "text"));
  return conversation;
}

std::string conversation_line(const Conversation& conversation) {
  Json row;
  row["id"] = conversation.id;
  row["input_ids"] = conversation.input_ids;
  row["loss_mask"] = conversation.loss_mask;
  if (!conversation.finish_reason.empty()) row["finish_reason"] = conversation.finish_reason;
  if (!conversation.messages.is_null()) row["messages"] = conversation.messages;
  if (!conversation.text.empty()) row["text"] = conversation.text;
  return json_line(row);
}

Result<ConversationFile> read_conversations(const std::string& path) {
  ConversationFile file;
  std::unordered_set<std::string> seen;
  EAGLET_RETURN_IF_ERROR(read_lines(path, "conversation", &file, [&](std::string_view line) -> Status {
    EAGLET_ASSIGN_OR_RETURN(Conversation conversation, parse_conversation(line));
    if (!seen.insert(conversation.id).second) return duplicate(conversation.id);
    file.conversations.push_back(std::move(conversation));
    return {};
  }));
  return file;
}

Result<Prompt> parse_prompt(std::string_view line) {
  EAGLET_ASSIGN_OR_RETURN(Json row, parse_row(line));
  Prompt prompt;
  EAGLET_ASSIGN_OR_RETURN(prompt.id, read_id(row));
  EAGLET_ASSIGN_OR_RETURN(Json messages, read_messages(row));
  if (!messages.is_null()) {
    EAGLET_ASSIGN_OR_RETURN(prompt.messages, plain_messages(messages));
  }
  if (field(row, "prompt_ids") != nullptr) {
    EAGLET_ASSIGN_OR_RETURN(prompt.prompt_ids, read_ids(row, "prompt_ids"));
    if (prompt.prompt_ids.empty()) return bad("field 'prompt_ids' is empty");
    return prompt;
  }
  if (prompt.messages.is_null()) return bad("field 'messages' is missing (and there are no 'prompt_ids')");
  if (prompt.messages.empty()) return bad("field 'messages' is empty");
  const std::string last_role = prompt.messages.back()["role"].get<std::string>();
  if (last_role != "user" && last_role != "tool")
    return bad("field 'messages' ends with a " + last_role + " turn, so there is nothing to answer");
  return prompt;
}

Result<PromptFile> read_prompts(const std::string& path) {
  PromptFile file;
  std::unordered_set<std::string> seen;
  EAGLET_RETURN_IF_ERROR(read_lines(path, "prompt", &file, [&](std::string_view line) -> Status {
    EAGLET_ASSIGN_OR_RETURN(Prompt prompt, parse_prompt(line));
    if (!seen.insert(prompt.id).second) return duplicate(prompt.id);
    file.prompts.push_back(std::move(prompt));
    return {};
  }));
  return file;
}

}  // namespace eaglet
