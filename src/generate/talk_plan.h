#pragma once

#include <vector>

#include "formats/conversations.h"

namespace eaglet {

/// Where in a talk the model is to answer, turn by turn. Without regeneration that is once, at the end. With
/// `kAll` every turn of the assistant that answers something is written anew, after a history that holds the
/// model's own earlier answers. Results of tools are taken from the source when the model makes as many calls
/// as the source did (the calls' new ids go into them); when it makes none they are left out, with the
/// source's answer to them; else the talk ends there.
class TalkPlan {
 public:
  TalkPlan(const Prompt& prompt, Regenerate regenerate);
  /// Goes on to the next question; false when there is none.
  bool next();
  /// All turns before the answer that is wanted now.
  const Json& history() const { return history_; }
  /// The model's answer to the question. A cut one ends the talk.
  void answer(const Json& turn, bool cut);
  /// The turns of history() that the model wrote, in order.
  const std::vector<std::size_t>& own_turns() const { return own_turns_; }

 private:
  void take_tool_results(const Json& said, const Json* replaced);
  bool source_is(const char* role) const;
  Json source_, history_ = Json::array();
  Regenerate regenerate_;
  std::size_t at_ = 0;  // the next turn of the source
  bool asked_ = false, ended_ = false;
  std::vector<std::size_t> own_turns_;
};

}  // namespace eaglet
