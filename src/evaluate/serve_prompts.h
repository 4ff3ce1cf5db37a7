#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "evaluate/evaluate.h"

namespace eaglet {

/// A prompt that is served again: the tokens before a recorded answer, and how many to answer with.
struct ServePrompt {
  std::string id;
  std::vector<std::int32_t> tokens;
  std::int64_t answer_tokens = 0;
};

/// The rows of options.ids (all: empty) that have a prompt and an answer. kNotFound (an id that no row has),
/// kInvalidArgument (no such row), the errors of reading.
Result<std::vector<ServePrompt>> read_serve_prompts(const ServeOptions& options);
/// kUsage unless there are some, of 1 to 64 tokens.
Status check_draft_lengths(const std::vector<std::int64_t>& lengths);
/// An empty sum for each draft length.
std::vector<ServedLength> no_sums(const std::vector<std::int64_t>& lengths);

}  // namespace eaglet
