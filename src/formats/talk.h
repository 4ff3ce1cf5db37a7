#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// A conversation as text, in our one shape (docs/formats/conversations.md): turns of role system, user,
/// assistant or tool; content always a text; thinking in reasoning_content, calls in tool_calls.
struct Talk {
  std::string id;                     // of the row, or "h-" and 16 hex digits of the content when it has none
  Json messages = Json::array();      // at least one turn
  Json tools;                         // list of tool definitions, or null
  std::vector<std::string> warnings;  // odd, but usable
};

/// A row's turns, whatever they are called: `messages`, `conversations` or `conversation`, role/content or
/// from/value, capitals or not. kDataLoss names the turn and what is wrong: an unknown role, an assistant
/// turn that says nothing, content that is no text, a broken tool call.
Result<Json> plain_turns(const Json& turns, std::vector<std::string>* warnings);

/// A row's talk: its turns, its tools and its id. kDataLoss names the field.
Result<Talk> read_talk(const Json& row);
/// Is it a row of turns at all? (Else perhaps one of token ids.)
bool has_turns(const Json& row);

/// 16 hex digits over turns and tools: equal for the same content, whatever its row looked like.
std::string talk_hash(const Json& messages, const Json& tools);

/// Does any turn of the assistant follow one of the user (or a tool)? Only such turns can be learnt: what
/// stands before the first question is context.
bool has_answer(const Json& messages);

}  // namespace eaglet
