#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// One training sequence (docs/formats/conversations.md).
struct Conversation {
  std::string id;
  std::vector<std::int32_t> input_ids;  // prompt and answer, exactly as the target saw and wrote them
  std::vector<std::uint8_t> loss_mask;  // same length, 1 where the target itself wrote the token
  std::string finish_reason;            // "stop" (end token included in input_ids) or "length"
  Json messages;                        // role/content, thinking in reasoning_content; may be null
  std::string text;                     // the answer as text; may be empty
  std::int64_t prompt_tokens() const;   // tokens before the first supervised one
};

/// A line that could not be used: its 1-based number and why. Such lines are counted and named, the rest goes
/// on.
struct BrokenLine {
  std::uint64_t line = 0;
  std::string reason;
};

struct ConversationFile {
  std::vector<Conversation> conversations;
  std::vector<BrokenLine> broken;  // a repeated id counts here too: the first line of an id wins
  std::uint64_t lines = 0;         // lines in the file = conversations + broken + blank_lines
  std::uint64_t blank_lines = 0;
};

/// Reads our own rows and rows of prompt_ids + response_ids + stop ("eos" | "limit").
/// A half last line without newline (a killed writer) counts as broken; a whole one without newline is read.
/// kNotFound, kDataLoss (no usable line at all: the first reason is told).
Result<ConversationFile> read_conversations(const std::string& path);
/// One row. Errors name the field.
Result<Conversation> parse_conversation(std::string_view line);
/// The row as one JSON line without newline.
std::string conversation_line(const Conversation& conversation);

/// A prompt to be answered.
struct Prompt {
  std::string id;
  Json messages;                         // array of {role, content}; null when prompt_ids are given
  std::vector<std::int32_t> prompt_ids;  // when given, used as they are, without the chat template
};
struct PromptFile {
  std::vector<Prompt> prompts;
  std::vector<BrokenLine> broken;  // duplicates of an id count here too
  std::uint64_t lines = 0, blank_lines = 0;
};
/// One row: id and messages (the last turn is the one to answer) or prompt_ids. Role names are lower-cased,
/// content given as a list of text parts is joined. Errors name the field.
Result<Prompt> parse_prompt(std::string_view line);
/// kNotFound, kDataLoss (no usable line at all).
Result<PromptFile> read_prompts(const std::string& path);

}  // namespace eaglet
