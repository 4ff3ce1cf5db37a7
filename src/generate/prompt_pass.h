#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/conversations.h"
#include "formats/row_reasons.h"
#include "formats/row_source.h"
#include "generate/side_lines.h"

namespace eaglet {

/// What a file of prompts holds, from one walk over it: which rows can be asked, and why the others cannot.
struct PromptSurvey {
  std::int64_t lines = 0, blank_lines = 0, prompts = 0;
  ReasonCounts left_out;
  std::vector<bool> usable;  // by row
};
/// `most`: only the first so many prompts (0: all); later rows are not looked at. Rows that cannot be asked
/// go to `side`. The first row of an id wins.
Result<PromptSurvey> survey_prompts(const std::string& path, Regenerate regenerate, std::int64_t most,
                                    SideLines* side);

/// The usable prompts again, one after another: only one is held.
class PromptSource {
 public:
  static Result<PromptSource> open(const std::string& path, Regenerate regenerate,
                                   const PromptSurvey& survey);
  /// False at the end.
  Result<bool> next(Prompt* prompt);

 private:
  PromptSource(std::unique_ptr<RowSource> rows, Regenerate regenerate, const PromptSurvey& survey)
      : rows_(std::move(rows)), regenerate_(regenerate), survey_(&survey) {}
  std::unique_ptr<RowSource> rows_;
  Regenerate regenerate_;
  const PromptSurvey* survey_;
  std::size_t row_ = 0;
};

}  // namespace eaglet
