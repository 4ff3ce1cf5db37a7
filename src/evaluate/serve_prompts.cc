#include "evaluate/serve_prompts.h"

#include <fmt/format.h>

#include <set>

#include "formats/conversations.h"

namespace eaglet {

Result<std::vector<ServePrompt>> read_serve_prompts(const ServeOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(const ConversationFile file, read_conversations(options.conversations_path));
  std::set<std::string> wanted(options.ids.begin(), options.ids.end());
  std::vector<ServePrompt> prompts;
  for (const Conversation& row : file.conversations) {
    if (!options.ids.empty() && wanted.erase(row.id) == 0) continue;
    const std::int64_t before = row.prompt_tokens(), all = static_cast<std::int64_t>(row.input_ids.size());
    if (before < 1 || before >= all) continue;  // nothing to ask, or nothing was answered
    const std::int64_t length = options.max_tokens > 0 ? options.max_tokens : all - before;
    prompts.push_back({row.id, {row.input_ids.begin(), row.input_ids.begin() + before}, length});
  }
  if (!wanted.empty()) {
    return Status(StatusCode::kNotFound, fmt::format("no conversation with id \"{}\"", *wanted.begin()),
                  options.conversations_path, "the ids must be those of the store's documents");
  }
  if (prompts.empty()) {
    return Status(StatusCode::kInvalidArgument, "no conversation with a prompt and an answer",
                  options.conversations_path);
  }
  return prompts;
}

Status check_draft_lengths(const std::vector<std::int64_t>& lengths) {
  if (lengths.empty())
    return Status(StatusCode::kUsage, "no draft length to serve with", {}, "--draft-lengths 1,2,3");
  for (const std::int64_t length : lengths) {
    if (length < 1 || length > 64) {
      return Status(StatusCode::kUsage, fmt::format("a draft length of {} cannot be served", length), {},
                    "use 1 to 64");
    }
  }
  return {};
}

std::vector<ServedLength> no_sums(const std::vector<std::int64_t>& lengths) {
  std::vector<ServedLength> sums;
  for (const std::int64_t length : lengths) {
    ServedLength sum;
    sum.draft_length = length;
    sum.accepted_at.resize(static_cast<std::size_t>(length), 0);
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace eaglet
