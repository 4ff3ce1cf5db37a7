#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "formats/row_reasons.h"

namespace eaglet {

struct PrepareOptions {
  std::vector<std::string> inputs;  // conversations of any form (docs/formats/conversations.md)
  std::string output_path;          // conversations.jsonl
  std::string model_path;           // the target with the tokenizer; not needed when all rows have token ids
  std::string template_path;        // a chat template instead of the model's
  std::string template_arguments;   // JSON object: further variables of the template
  std::int64_t max_seq_len = 0;     // cut sequences to so many tokens; 0 = no cut
  bool strict = false;              // the first row that cannot be used ends the run
  bool last_turn_only = false;      // supervise the last answer of a talk only
  bool learn_empty_thinking = false;
};

struct PrepareReport {
  std::int64_t lines = 0, blank_lines = 0, kept = 0;  // lines = kept + blank_lines + left out
  ReasonCounts left_out;
  std::int64_t warnings = 0, cut = 0;  // rows: odd but kept; kept without their end
  std::int64_t rows = 0, tokens = 0, supervised_tokens = 0;
  std::int64_t with_thinking = 0, with_tools = 0;
};

/// Turns conversations of any form into training sequences: renders talks with the target's template, marks
/// what the target wrote. The output appears when all of it is written. Beside it "<name>.skipped.jsonl"
/// names every line that was left out or is odd. kInvalidArgument: nothing is left to learn.
Result<PrepareReport> prepare(const PrepareOptions& options, Progress& progress);

/// Does the file hold token ids already (told by its first row that can be read)? Then it is taken as it is.
/// The errors of reading it.
Result<bool> has_token_rows(const std::string& path);

}  // namespace eaglet
