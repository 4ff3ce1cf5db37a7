#include "formats/conversations.h"
#include "formats/reasoning.h"
#include "formats/row_reasons.h"
#include "formats/tool_calls.h"
#include "fuzz_input.h"

// Conversations of any form: turns, thinking, tool calls.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace eaglet;
  const auto row = parse_answered_row(as_text(data, bytes));
  if (!row.ok()) {
    promise(!reason_group(row.status().what()).empty());
    return 0;
  }
  promise(!row->id.empty());
  if (row->has_tokens) return 0;
  const Talk& talk = row->talk;
  promise(talk.messages.is_array() && !talk.messages.empty());
  for (const Json& turn : talk.messages) {
    promise(turn["content"].is_string());
    if (turn["role"] == "assistant" && turn.contains("reasoning_content"))
      promise(turn["reasoning_content"].is_string());
  }
  // Our own shape reads back as itself.
  std::vector<std::string> warnings;
  const auto again = plain_turns(talk.messages, &warnings);
  if (again.ok()) promise(*again == talk.messages);
  promise(with_text_arguments(talk.messages).size() == talk.messages.size());
  return 0;
}
