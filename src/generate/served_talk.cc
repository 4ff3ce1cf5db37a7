#include "generate/served_talk.h"

#include <fmt/format.h>

#include <utility>

#include "base/hash.h"
#include "generate/answer_file.h"

namespace eaglet {

std::uint32_t prompt_seed(std::uint64_t seed, const std::string& id) {
  return static_cast<std::uint32_t>(xxh64(id.data(), id.size(), seed));
}

ServedTalk::ServedTalk(Prompt prompt, Regenerate regenerate, std::uint64_t seed)
    : prompt_(std::move(prompt)),
      hash_(prompt_.hash()),
      seed_(seed),
      plan_(prompt_, prompt_.prompt_ids.empty() ? regenerate : Regenerate::kNone) {}

Result<bool> ServedTalk::next(const ServerFacts& server, const TalkRenderer* renderer, Asking* asking) {
  if (!plan_.next()) return false;
  asking->messages = plan_.history();
  asking->tools = prompt_.tools;
  asking->prompt_ids = prompt_.prompt_ids;
  asking->seed = prompt_seed(seed_ + questions(), prompt_.id);
  if (server.kind == ServerKind::kSglang && prompt_.prompt_ids.empty()) {
    if (renderer == nullptr)
      return Status(StatusCode::kConfig,
                    "SGLang gives no token ids for chats, and there is no chat template here", server.url,
                    "give --model TARGET (and --chat-template FILE when the server uses another one)");
    EAGLET_ASSIGN_OR_RETURN(asking->prompt_text, renderer->render_prompt(asking->messages, asking->tools,
                                                                         asking->messages.size()));
  }
  return true;
}

Status ServedTalk::answer(const ServedAnswer& answer, const TalkRenderer* renderer) {
  const std::size_t place = plan_.history().size();
  plan_.answer(answer.turn, answer.cut);
  TokenTurn turn;
  if (answer.has_ids()) {
    turn = {answer.prompt_ids, answer.answer_ids, !answer.cut && !answer.ended_by_stop};
  } else if (renderer == nullptr || plan_.history().size() != place + 1 || prompt_.messages.is_null()) {
    return Status(
        StatusCode::kConfig, "the server gives no token ids", {},
        "use vLLM 0.10 or later, SGLang or llama-server, or give --model TARGET: the texts are then "
        "tokenised with its tokenizer and template");
  } else {
    EAGLET_ASSIGN_OR_RETURN(turn, renderer->turn_tokens(plan_.history(), prompt_.tools, place, answer.cut));
    tokenised_here_ = true;
  }
  join_turn(turn, place, &rows_);
  texts_.push_back(answer.text);
  cut_ = answer.cut;
  ends_ = turn.ends;
  cut_while_thinking_ = answer.cut_while_thinking;
  has_thinking_ = has_thinking_ || answer.turn.contains("reasoning_content");
  return {};
}

std::vector<Conversation> ServedTalk::rows() const {
  std::vector<Conversation> rows;
  std::size_t answers = 0;
  for (const TalkRow& row : rows_) {
    Conversation one;
    one.id = part_id(prompt_.id, rows.size() + 1, rows_.size());
    one.input_ids = row.input_ids;
    one.loss_mask = row.loss_mask;
    one.finish_reason = row.ends ? "stop" : "length";
    if (prompt_.messages.is_array()) {
      one.messages = Json::array();
      if (prompt_.prompt_ids.empty()) {
        for (std::size_t i = 0; i <= row.turns.back(); ++i) one.messages.push_back(plan_.history()[i]);
      } else {
        one.messages = prompt_.messages;
        one.messages.push_back(plan_.history()[row.turns.back()]);
      }
    }
    one.tools = prompt_.tools;
    answers += row.turns.size();
    one.text = texts_[answers - 1];
    one.prompt_hash = hash_;
    rows.push_back(std::move(one));
  }
  return rows;
}

}  // namespace eaglet
