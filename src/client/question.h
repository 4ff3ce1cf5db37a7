#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/server_facts.h"
#include "formats/json.h"

namespace eaglet {

/// How answers are drawn.
struct Sampling {
  std::int64_t max_tokens = 256;
  double temperature = 0, top_p = 1.0;
  Json extra = {};  // further fields of the request (top_k, chat_template_kwargs, ...), or null
};

/// What is asked.
struct Asking {
  Json messages;                         // in our one shape; not read when prompt_ids are given
  Json tools;                            // or null
  std::vector<std::int32_t> prompt_ids;  // when given, asked as they are
  std::string prompt_text;               // rendered already (SGLang renders no templates for us)
  std::uint32_t seed = 0;
};

enum class Outcome {
  kAnswer,
  kEmpty,    // the server answered with nothing: worth another try
  kRefused,  // the request itself is at fault
  kBroken    // no whole or no sensible reply: worth another try
};

struct ServedAnswer {
  Outcome outcome = Outcome::kBroken;
  std::string message;  // why it is none
  int status = 0;       // HTTP status of a refusal
  Json turn;            // the assistant's turn in our one shape
  std::string text;     // the answer as the server wrote it
  bool cut = false;     // by length
  bool cut_while_thinking = false;
  bool ended_by_stop = false;  // a stop string of the request, not the model itself, ended it
  std::vector<std::int32_t> prompt_ids, answer_ids;  // both empty when the server gives none
  std::int64_t prompt_tokens = 0, answer_tokens = 0;
  /// Speculation while this answer was made, where the server tells it: drafted tokens, those accepted,
  /// passes of the target. -1: not told.
  std::int64_t drafted = -1, accepted = -1, passes = -1;
  bool has_ids() const { return !prompt_ids.empty() && !answer_ids.empty(); }
};

/// One answer from a server: the requests it takes, one after another, and what they bring. llama-server
/// takes three (render, tokenise, complete), SGLang two, the others one. Any reply is survived.
class Question {
 public:
  Question(const ServerFacts& server, const Sampling& sampling, Asking asking);
  std::string path() const;
  std::string body() const;
  /// Takes the reply to the current request. True: the answer is there (of whatever outcome); false: there is
  /// another request to send.
  bool take(const HttpReply& reply);
  ServedAnswer& answer() { return answer_; }

 private:
  enum class Step { kRender, kTokenize, kChat, kComplete };
  Json sampling_fields() const;
  bool finish(Outcome outcome, const std::string& message);
  bool refuse(const HttpReply& reply);
  bool take_rendered(const Json& reply);
  bool take_tokens(const Json& reply);
  bool take_chat(const Json& reply);
  bool take_completion(const Json& reply);
  bool take_llama(const Json& reply);
  bool take_sglang(const Json& reply);
  bool take_plain_text(std::string text);
  bool finish_turn(bool thinking_open);

  const ServerFacts& server_;
  const Sampling& sampling_;
  Asking asking_;
  Step step_;
  bool prompt_opens_thinking_ = false;
  ServedAnswer answer_;
};

}  // namespace eaglet
