#include "generate/prompt_pass.h"

#include <fmt/format.h>

#include <unordered_map>

namespace eaglet {

Result<PromptSurvey> survey_prompts(const std::string& path, Regenerate regenerate, std::int64_t most,
                                    SideLines* side) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> rows, RowSource::open(path));
  PromptSurvey survey;
  std::unordered_map<std::string, std::pair<std::uint64_t, std::string>> seen;  // id -> row, hash
  RowText row;
  std::string first_reason;
  while (most == 0 || survey.prompts < most) {
    EAGLET_ASSIGN_OR_RETURN(const bool there, rows->next(&row));
    if (!there) break;
    ++survey.lines;
    survey.usable.push_back(false);
    if (row.blank()) {
      ++survey.blank_lines;
      continue;
    }
    const Result<Prompt> prompt = parse_prompt(row.text, regenerate);
    std::string reason = prompt.ok() ? "" : prompt.status().what();
    if (prompt.ok()) {
      const auto [before, is_new] = seen.try_emplace(prompt->id, row.number, prompt->hash());
      if (!is_new && before->second.second == prompt->hash())
        reason = fmt::format("same id and content as line {}", before->second.first);
      else if (!is_new)
        reason =
            fmt::format("the id was used by an earlier line ({}) for another prompt", before->second.first);
    } else if (row.unfinished) {
      reason += "; the last line has no end: its writer was stopped there";
    }
    if (reason.empty()) {
      survey.usable.back() = true;
      ++survey.prompts;
      continue;
    }
    if (first_reason.empty()) first_reason = fmt::format("{} {}: {}", rows->unit(), row.number, reason);
    ++survey.left_out[reason_group(reason)];
    side->add({{"line", row.number}, {"id", prompt.ok() ? Json(prompt->id) : Json()}, {"reason", reason}});
  }
  if (survey.prompts > 0) return survey;
  return Status(StatusCode::kDataLoss,
                first_reason.empty() ? "the file holds no prompt"
                                     : fmt::format("none of the {} lines is a usable prompt; {}",
                                                   survey.lines - survey.blank_lines, first_reason),
                path, "give a file with one {\"id\": ..., \"messages\": [...]} a line");
}

Result<PromptSource> PromptSource::open(const std::string& path, Regenerate regenerate,
                                        const PromptSurvey& survey) {
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<RowSource> rows, RowSource::open(path));
  return PromptSource(std::move(rows), regenerate, survey);
}

Result<bool> PromptSource::next(Prompt* prompt) {
  RowText row;
  while (row_ < survey_->usable.size()) {
    EAGLET_ASSIGN_OR_RETURN(const bool there, rows_->next(&row));
    if (!there) break;
    if (!survey_->usable[row_++]) continue;
    auto parsed = parse_prompt(row.text, regenerate_);
    if (!parsed.ok())
      return Status(StatusCode::kDataLoss,
                    "the prompts changed while they were read: " + parsed.status().what());
    *prompt = std::move(*parsed);
    return true;
  }
  return false;
}

}  // namespace eaglet
