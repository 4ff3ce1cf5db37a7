#include "generate/talk_plan.h"

#include <algorithm>
#include <map>
#include <string>

#include "formats/json_field.h"

namespace eaglet {
namespace {

std::size_t calls_in(const Json* turn) {
  const Json* calls = turn != nullptr ? json_field(*turn, "tool_calls") : nullptr;
  return calls != nullptr && calls->is_array() ? calls->size() : 0;
}

bool asks(const Json& turn) {
  return turn["role"] == "user" || turn["role"] == "tool";
}

}  // namespace

TalkPlan::TalkPlan(const Prompt& prompt, Regenerate regenerate)
    : source_(prompt.messages), regenerate_(regenerate) {
  if (source_.is_null()) source_ = Json::array();
}

bool TalkPlan::source_is(const char* role) const {
  return at_ < source_.size() && source_[at_]["role"] == role;
}

bool TalkPlan::next() {
  if (ended_) return false;
  if (regenerate_ != Regenerate::kAll) {
    if (!own_turns_.empty()) return false;
    history_ = source_;
    at_ = source_.size();
    return true;
  }
  while (at_ < source_.size()) {
    const Json& turn = source_[at_];
    const bool waits = !history_.empty() && asks(history_.back());
    if (turn["role"] == "assistant" && asked_) {
      if (waits) return true;
      ++at_;  // a second answer to the same question
      continue;
    }
    asked_ = asked_ || asks(turn);
    history_.push_back(turn);
    ++at_;
  }
  return !history_.empty() && asks(history_.back());
}

void TalkPlan::answer(const Json& turn, bool cut) {
  own_turns_.push_back(history_.size());
  history_.push_back(turn);
  const Json* replaced = nullptr;
  if (source_is("assistant")) replaced = &source_[at_++];
  if (cut)
    ended_ = true;
  else
    take_tool_results(turn, replaced);
}

void TalkPlan::take_tool_results(const Json& said, const Json* replaced) {
  const std::size_t calls = calls_in(&said);
  if (!source_is("tool")) {
    ended_ = calls > 0;  // nobody has the results
    return;
  }
  if (calls == 0) {  // the model did without the tool
    while (at_ < source_.size() && source_[at_]["role"] != "user") ++at_;
    return;
  }
  if (calls != calls_in(replaced)) {
    ended_ = true;
    return;
  }
  std::map<std::string, Json> new_ids;
  for (std::size_t i = 0; i < calls; ++i) {
    const Json* before = json_field((*replaced)["tool_calls"][i], "id");
    const Json* now = json_field(said["tool_calls"][i], "id");
    if (before != nullptr && now != nullptr) new_ids[before->get<std::string>()] = *now;
  }
  for (std::size_t i = at_; i < source_.size() && source_[i]["role"] == "tool"; ++i) {
    const Json* id = json_field(source_[i], "tool_call_id");
    if (id == nullptr || !id->is_string()) continue;
    const auto renamed = new_ids.find(id->get<std::string>());
    if (renamed != new_ids.end()) source_[i]["tool_call_id"] = renamed->second;
  }
}

}  // namespace eaglet
