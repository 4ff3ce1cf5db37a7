#include "apps/show_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "apps/terminal.h"
#include "formats/conversations.h"
#include "verifier/target_tokens.h"

namespace eaglet::apps {
namespace {

std::string text_of(const TargetTokens* target, std::int32_t token) {
  return target == nullptr ? fmt::format(" {}", token) : target->piece(token, true);
}

std::string marked(const Conversation& row, const TargetTokens* target, bool color) {
  std::string text;
  for (std::size_t i = 0; i < row.input_ids.size();) {
    std::size_t end = i;
    std::string span;
    while (end < row.input_ids.size() && row.loss_mask[end] == row.loss_mask[i])
      span += text_of(target, row.input_ids[end++]);
    text += row.loss_mask[i] == 0 ? span : toned(">>" + span + "<<", Tone::kGood, color);
    i = end;
  }
  return text;
}

}  // namespace

Result<std::string> show_row(const std::string& path, const std::string& id, const std::string& model_path,
                             bool color) {
  EAGLET_ASSIGN_OR_RETURN(const ConversationFile file, read_conversations(path));
  const auto row = std::find_if(file.conversations.begin(), file.conversations.end(),
                                [&](const Conversation& c) { return c.id == id; });
  if (row == file.conversations.end())
    return Status(StatusCode::kNotFound, "no sequence has the id " + id, path,
                  file.conversations.empty() ? "" : "the first one is " + file.conversations.front().id);
  std::unique_ptr<TargetTokens> target;
  if (!model_path.empty()) {
    EAGLET_ASSIGN_OR_RETURN(target, TargetTokens::open(model_path));
  }
  const auto supervised = std::count(row->loss_mask.begin(), row->loss_mask.end(), 1);
  return fmt::format("{}: {} tokens, {} supervised (between >> and <<), finish {}\n{}\n", row->id,
                     row->input_ids.size(), supervised,
                     row->finish_reason.empty() ? "unknown" : row->finish_reason,
                     marked(*row, target.get(), color));
}

}  // namespace eaglet::apps
