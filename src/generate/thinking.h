#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verifier/chat_template.h"

namespace eaglet {

/// An answer taken apart. `reasoning_begin..end` are token positions within the answer, markers included;
/// equal when there was no thinking.
struct SplitAnswer {
  std::string text;       // the whole answer, thinking and its markers included, end token left out
  std::string reasoning;  // inside the markers
  std::string content;    // after them
  std::size_t reasoning_begin = 0, reasoning_end = 0;
  bool has_reasoning() const { return reasoning_end > reasoning_begin; }
};

/// `pieces[i]` is the text of answer token i. Thinking that the length limit cut stays thinking: content is
/// then empty.
SplitAnswer split_answer(const std::vector<std::string>& pieces, const RenderedPrompt& prompt);

}  // namespace eaglet
