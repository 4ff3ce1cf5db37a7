#include "formats/conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_set>

#include "base/hash.h"
#include "formats/json_field.h"
#include "formats/row_source.h"

namespace eaglet {
namespace {

Status bad_conversation(const std::string& what) {
  return bad_row(what);
}
std::string shown(const Json& value) {
  return json_shown(value);
}
const Json* field(const Json& row, const char* name) {
  return json_field(row, name);
}

Result<Json> parse_row(std::string_view line) {
  EAGLET_ASSIGN_OR_RETURN(Json row, parse_json(line));
  if (!row.is_object()) return bad_conversation("the line is not a JSON object");
  return row;
}

/// Empty when the row has none: it then gets one from its content.
Result<std::string> read_id(const Json& row) {
  for (const char* name : {"id", "uuid", "conversation_id"}) {
    const Json* id = field(row, name);
    if (id == nullptr) continue;
    if (id->is_number_integer()) return id->dump();
    if (!id->is_string())
      return bad_conversation(fmt::format("field '{}' is {}, must be a text", name, shown(*id)));
    if (id->get_ref<const std::string&>().empty())
      return bad_conversation(fmt::format("field '{}' is empty", name));
    return id->get<std::string>();
  }
  return std::string();
}

std::string id_of_tokens(const std::vector<std::int32_t>& ids) {
  return "h-" + hex64(xxh64(ids.data(), ids.size() * sizeof(std::int32_t)));
}

Result<std::string> read_text(const Json& row, const char* name) {
  const Json* value = field(row, name);
  if (value == nullptr) return std::string();
  if (!value->is_string())
    return bad_conversation(fmt::format("field '{}' is {}, must be a text", name, shown(*value)));
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
  if (values == nullptr) return bad_conversation(fmt::format("field '{}' is missing", name));
  if (!values->is_array())
    return bad_conversation(
        fmt::format("field '{}' is {}, must be a list of token ids", name, shown(*values)));
  std::vector<std::int32_t> ids;
  ids.reserve(values->size());
  for (const Json& value : *values) {
    std::int64_t id = 0;
    if (!whole_number_in(value, 0, std::numeric_limits<std::int32_t>::max(), &id))
      return bad_conversation(
          fmt::format("field '{}' entry {} is {}, must be a whole number from 0 to 2147483647", name,
                      ids.size(), shown(value)));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

Result<std::vector<std::uint8_t>> read_mask(const Json& row, std::size_t tokens) {
  const Json* values = field(row, "loss_mask");
  if (values == nullptr) return bad_conversation("field 'loss_mask' is missing");
  if (!values->is_array())
    return bad_conversation("field 'loss_mask' is " + shown(*values) + ", must be a list of 0 and 1");
  if (values->size() != tokens)
    return bad_conversation(
        fmt::format("field 'loss_mask' has {} entries but 'input_ids' has {}", values->size(), tokens));
  std::vector<std::uint8_t> mask;
  mask.reserve(tokens);
  for (const Json& value : *values) {
    std::int64_t bit = 0;
    if (!whole_number_in(value, 0, 1, &bit))
      return bad_conversation(
          fmt::format("field 'loss_mask' entry {} is {}, must be 0 or 1", mask.size(), shown(value)));
    mask.push_back(static_cast<std::uint8_t>(bit));
  }
  return mask;
}

Result<std::string> read_finish_reason(const Json& row) {
  EAGLET_ASSIGN_OR_RETURN(std::string reason, read_text(row, "finish_reason"));
  if (!reason.empty()) {
    if (reason == "stop" || reason == "length") return reason;
    return bad_conversation("field 'finish_reason' is " + shown(reason) + ", must be \"stop\" or \"length\"");
  }
  EAGLET_ASSIGN_OR_RETURN(std::string stop, read_text(row, "stop"));
  if (stop.empty()) return std::string();
  if (stop == "eos") return std::string("stop");
  if (stop == "limit") return std::string("length");
  return bad_conversation("field 'stop' is " + shown(stop) + ", must be \"eos\" or \"limit\"");
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
    return bad_conversation(
        "field 'input_ids' is missing (and there are no 'prompt_ids' and 'response_ids' instead)");
  }
  if (to->input_ids.empty()) return bad_conversation("the row has no tokens");
  return {};
}

Result<Json> read_messages(const Json& row) {
  const Json* messages = field(row, "messages");
  if (messages == nullptr) return Json();
  if (!messages->is_array())
    return bad_conversation("field 'messages' is " + shown(*messages) + ", must be a list");
  for (const Json& turn : *messages)
    if (!turn.is_object() || !turn.contains("role") || !turn["role"].is_string())
      return bad_conversation("field 'messages' holds a turn without a role");
  return *messages;
}

/// Walks the rows of a file: `use(text)` says what is wrong with one, or takes it in.
template <class File, class Use>
Status read_lines(const std::string& path, const char* what_a_line_is, File* file, const Use& use) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> rows, RowSource::open(path));
  std::uint64_t used = 0;
  RowText row;
  for (;;) {
    EAGLET_ASSIGN_OR_RETURN(const bool there, rows->next(&row));
    if (!there) break;
    ++file->lines;
    if (row.blank()) {
      ++file->blank_lines;
      continue;
    }
    const Status problem = use(row.text);
    if (problem.ok())
      ++used;
    else if (row.unfinished)
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
  return bad_conversation("the id " + shown(id) + " was used by an earlier line");
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
  EAGLET_ASSIGN_OR_RETURN(conversation.prompt_hash, read_text(row, "prompt_hash"));
  if (const Json* tools = field(row, "tools")) conversation.tools = *tools;
  if (conversation.id.empty()) conversation.id = id_of_tokens(conversation.input_ids);
  return conversation;
}

std::string conversation_line(const Conversation& conversation) {
  Json row;
  row["id"] = conversation.id;
  row["input_ids"] = conversation.input_ids;
  row["loss_mask"] = conversation.loss_mask;
  if (!conversation.finish_reason.empty()) row["finish_reason"] = conversation.finish_reason;
  if (!conversation.messages.is_null()) row["messages"] = conversation.messages;
  if (!conversation.tools.is_null()) row["tools"] = conversation.tools;
  if (!conversation.text.empty()) row["text"] = conversation.text;
  if (!conversation.prompt_hash.empty()) row["prompt_hash"] = conversation.prompt_hash;
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

Result<Regenerate> regenerate_from_name(const std::string& name) {
  if (name == "none") return Regenerate::kNone;
  if (name == "last") return Regenerate::kLast;
  if (name == "all") return Regenerate::kAll;
  return Status(StatusCode::kUsage, "--regenerate \"" + name + "\" is not known", "",
                "give none, last (the answer at the end) or all (every answer, turn by turn)");
}

std::string Prompt::hash() const {
  if (prompt_ids.empty()) return talk_hash(messages, tools);
  return hex64(xxh64(prompt_ids.data(), prompt_ids.size() * sizeof(std::int32_t)));
}

Result<Prompt> parse_prompt(std::string_view line, Regenerate regenerate) {
  EAGLET_ASSIGN_OR_RETURN(const Json row, parse_row(line));
  Prompt prompt;
  EAGLET_ASSIGN_OR_RETURN(prompt.id, read_id(row));
  if (has_turns(row)) {
    EAGLET_ASSIGN_OR_RETURN(Talk talk, read_talk(row));
    prompt.messages = std::move(talk.messages);
    prompt.tools = std::move(talk.tools);
    prompt.warnings = std::move(talk.warnings);
  }
  if (field(row, "prompt_ids") != nullptr) {
    EAGLET_ASSIGN_OR_RETURN(prompt.prompt_ids, read_ids(row, "prompt_ids"));
    if (prompt.prompt_ids.empty()) return bad_conversation("field 'prompt_ids' is empty");
    if (prompt.id.empty()) prompt.id = id_of_tokens(prompt.prompt_ids);
    return prompt;
  }
  if (prompt.messages.is_null())
    return bad_conversation("field 'messages' is missing (and there are no 'prompt_ids')");
  if (regenerate == Regenerate::kLast)
    while (!prompt.messages.empty() && prompt.messages.back()["role"] == "assistant")
      prompt.messages.erase(prompt.messages.size() - 1);
  if (prompt.id.empty()) prompt.id = "h-" + talk_hash(prompt.messages, prompt.tools);
  if (prompt.messages.empty()) return bad_conversation("field 'messages' has no turn that could be answered");
  const std::string last_role = prompt.messages.back()["role"].get<std::string>();
  const bool asks = last_role == "user" || last_role == "tool";
  if (!asks && !(regenerate == Regenerate::kAll && has_answer(prompt.messages)))
    return bad_conversation("field 'messages' ends with a turn of the " + last_role +
                            ", so there is nothing to answer" +
                            (last_role == "assistant" && regenerate == Regenerate::kNone
                                 ? " (--regenerate last or all writes its answers anew)"
                                 : ""));
  return prompt;
}

Result<AnsweredRow> parse_answered_row(std::string_view line) {
  EAGLET_ASSIGN_OR_RETURN(const Json row, parse_row(line));
  AnsweredRow answered;
  answered.has_tokens = field(row, "input_ids") != nullptr || field(row, "response_ids") != nullptr;
  if (answered.has_tokens) {
    EAGLET_ASSIGN_OR_RETURN(answered.tokens, parse_conversation(line));
    answered.id = answered.tokens.id;
    return answered;
  }
  if (!has_turns(row))
    return bad_conversation(
        "the row has neither turns ('messages', 'conversations') nor token ids ('input_ids')");
  EAGLET_ASSIGN_OR_RETURN(answered.talk, read_talk(row));
  EAGLET_ASSIGN_OR_RETURN(answered.id, read_id(row));
  if (answered.id.empty()) answered.id = "h-" + talk_hash(answered.talk.messages, answered.talk.tools);
  answered.talk.id = answered.id;
  if (!has_answer(answered.talk.messages))
    return bad_conversation("nothing to learn: no turn of the assistant follows a turn of the user");
  return answered;
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
