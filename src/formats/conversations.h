#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "formats/talk.h"

namespace eaglet {

/// One training sequence (docs/formats/conversations.md).
struct Conversation {
  std::string id;
  std::vector<std::int32_t> input_ids;  // prompt and answer, exactly as the target saw and wrote them
  std::vector<std::uint8_t> loss_mask;  // same length, 1 where the target itself wrote the token
  std::string finish_reason;            // "stop" (end token included in input_ids) or "length"
  Json messages;                        // role/content, thinking in reasoning_content; may be null
  Json tools;                           // tool definitions that stood in the prompt, or null
  std::string text;                     // the answer as text; may be empty
  std::string prompt_hash;              // of what was asked (talk_hash), or empty
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

/// Reads our own rows and rows of prompt_ids + response_ids + stop ("eos" | "limit"): JSON lines or one JSON
/// list, plain, gzip or zstd. A half last line without newline (a killed writer) counts as broken; a whole
/// one without newline is read. kNotFound, kDataLoss (no usable line at all: the first reason is told).
Result<ConversationFile> read_conversations(const std::string& path);
/// One row. Errors name the field.
Result<Conversation> parse_conversation(std::string_view line);
/// The row as one JSON line without newline.
std::string conversation_line(const Conversation& conversation);

/// A prompt to be answered.
struct Prompt {
  std::string id;
  Json messages;                         // turns in our one shape (talk.h); null when only ids are given
  Json tools;                            // tool definitions, or null
  std::vector<std::int32_t> prompt_ids;  // when given, used as they are, without the chat template
  std::vector<std::string> warnings;     // odd, but usable
  /// Equal for the same question, whatever its row looks like (talk_hash, or over the ids).
  std::string hash() const;
};
struct PromptFile {
  std::vector<Prompt> prompts;
  std::vector<BrokenLine> broken;  // duplicates of an id count here too
  std::uint64_t lines = 0, blank_lines = 0;
};
/// Which turns of the assistant are to be written anew.
enum class Regenerate { kNone, kLast, kAll };
/// "none", "last", "all"; kUsage.
Result<Regenerate> regenerate_from_name(const std::string& name);

/// One row: turns (talk.h) or prompt_ids; without an id it gets one from its content. The last turn is the
/// one to answer; with kLast answers at the end are dropped first, with kAll turns stay as they are. Errors
/// name the field.
Result<Prompt> parse_prompt(std::string_view line, Regenerate regenerate = Regenerate::kNone);
/// kNotFound, kDataLoss (no usable line at all).
Result<PromptFile> read_prompts(const std::string& path);

/// A row of answers in either form: token ids with their mask, or a talk that has to be rendered.
struct AnsweredRow {
  std::string id;
  bool has_tokens = false;
  Conversation tokens;  // when has_tokens
  Talk talk;            // else
};
/// Any row that holds answers, with an id from its content when it has none. Errors name the field.
Result<AnsweredRow> parse_answered_row(std::string_view line);

}  // namespace eaglet
