#include "apps/show_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "verifier/target_tokens.h"

namespace eaglet::apps {

Result<Json> tokens_json(const std::string& model_path, const std::string& text) {
  EAGLET_ASSIGN_OR_RETURN(const std::unique_ptr<TargetTokens> target, TargetTokens::open(model_path));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, target->plain_ids(text));
  Json pieces = Json::array();
  for (const std::int32_t id : ids) pieces.push_back(target->piece(id, true));
  const SpecialFrame frame = target->frame();
  return Json{{"ids", ids}, {"pieces", pieces}, {"before", frame.before}, {"behind", frame.behind}};
}

std::string tokens_text(const Json& tokens) {
  std::string text;
  for (std::size_t i = 0; i < tokens["ids"].size(); ++i)
    text += fmt::format("{:>8}  {}\n", tokens["ids"][i].get<std::int32_t>(), json_line(tokens["pieces"][i]));
  text += fmt::format("{} tokens", tokens["ids"].size());
  for (const char* side : {"before", "behind"})
    if (!tokens[side].empty())
      text += fmt::format("; {} a plain text: {}", side,
                          fmt::join(tokens[side].get<std::vector<std::int32_t>>(), ", "));
  return text + "\n";
}

}  // namespace eaglet::apps
