#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/question.h"
#include "formats/conversations.h"
#include "generate/talk_plan.h"
#include "verifier/talk_renderer.h"

namespace eaglet {

/// One prompt on its way through the servers: what was asked, what came, and the sequences it becomes.
class ServedTalk {
 public:
  ServedTalk(Prompt prompt, Regenerate regenerate, std::uint64_t seed);
  const std::string& id() const { return prompt_.id; }
  const std::string& hash() const { return hash_; }
  std::size_t questions() const { return plan_.own_turns().size(); }  // answered so far

  /// The next question to ask; false when the talk is through. kInvalidArgument: it cannot be rendered (a
  /// server that needs the prompt as text).
  Result<bool> next(const ServerFacts& server, const TalkRenderer* renderer, Asking* asking);
  /// Takes an answer up. `renderer` (may be null) is needed when the answer has no token ids.
  /// kInvalidArgument: the answer cannot be turned into tokens; kConfig: there is no renderer.
  Status answer(const ServedAnswer& answer, const TalkRenderer* renderer);

  /// The finished talk's rows.
  std::vector<Conversation> rows() const;
  bool cut() const { return cut_; }
  bool cut_while_thinking() const { return cut_while_thinking_; }
  bool has_thinking() const { return has_thinking_; }
  bool tokenised_here() const { return tokenised_here_; }

 private:
  Prompt prompt_;
  std::string hash_;
  std::uint64_t seed_;
  TalkPlan plan_;
  std::vector<TalkRow> rows_;
  std::vector<std::string> texts_;  // of the answers, in order
  bool cut_ = false, cut_while_thinking_ = false, has_thinking_ = false, tokenised_here_ = false;
  bool ends_ = false;  // the last answer's last token ends a turn
};

/// The seed of one prompt: the same whatever its place in the file, its slot, or how often the run was
/// resumed.
std::uint32_t prompt_seed(std::uint64_t seed, const std::string& id);

}  // namespace eaglet
