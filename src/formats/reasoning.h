#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// How models write their thinking into a text: "<think>", "</think>" and their like.
struct ThinkingTags {
  std::string open, close;
};
const std::vector<ThinkingTags>& known_thinking_tags();

/// A text that was taken apart at its thinking tags.
struct InlineThinking {
  std::string reasoning, content;  // trimmed; no tag in either
  bool closed = true;              // false: the text ends inside the thinking, content is empty
};
/// Nothing when the text does not open with a tag (later in it a tag is text about tags). With
/// `open_in_prompt`, a text that has a closing tag and no opening one begins inside the thinking: the prompt
/// opened it.
std::optional<InlineThinking> split_inline_thinking(const std::string& text, bool open_in_prompt);

/// Brings the thinking of an assistant turn into one shape: field `reasoning_content` (absent when there is
/// none), whichever of reasoning_content, reasoning, thinking, thoughts, reasoning_text, reasoning_details it
/// came in, or inline tags in `content` (a text by now). The same text in two fields counts once. Returns
/// whether thinking was left open by a text that ends inside it. Differing fields are joined and told in
/// `warnings`. kDataLoss: a field that is no text.
Result<bool> unify_reasoning(Json* turn, bool open_in_prompt, std::vector<std::string>* warnings);

/// White space off both ends.
std::string trimmed_text(const std::string& text);

}  // namespace eaglet
