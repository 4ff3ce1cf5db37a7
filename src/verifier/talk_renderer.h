#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "verifier/target_tokens.h"

struct common_chat_template;

namespace eaglet {

struct RenderOptions {
  std::string template_text;  // instead of the target's own
  Json template_arguments;    // further variables of the template (chat_template_kwargs), or null
  /// An empty think block that the template puts before an answer without thinking is context; true: it is
  /// learnt like the answer.
  bool learn_empty_thinking = false;
};

/// Does the target carry a chat template?
bool has_chat_template(const TargetTokens& target);

/// A template that knows nothing of tools drops them without a word. kInvalidArgument when the calls and
/// results of the first `count` turns, or the definitions, are not all in the rendered text.
Status check_tools_rendered(const Json& messages, const Json& tools, std::size_t count,
                            const std::string& text);

/// One turn of the assistant as text: what the target saw, and what it wrote after that, its end-of-turn
/// marker and whatever the template writes behind it included.
struct RenderedTurn {
  std::string prompt, answer;
};

/// One turn as tokens: the prompt as the target saw it, and what it wrote.
struct TokenTurn {
  std::vector<std::int32_t> prompt, answer;
  bool ends = false;  // the answer's last token is one that ends a turn
};

/// A training sequence out of a talk.
struct TalkRow {
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;
  std::vector<std::size_t> turns;  // which turns of the talk (from 0) are supervised in it
  bool ends = false;               // the last token is one that ends a turn
};

/// Renders talks with a chat template and finds what the target wrote in what was really rendered. Every
/// supervised turn is rendered twice: the talk before it with the generation prompt, which is what the target
/// saw, and the talk up to and including it; the difference is the turn. Prompt and answer are tokenised
/// apart, as they were when the target wrote the answer. Words inside a turn that look like markers therefore
/// never start a span. Not thread-safe.
class TalkRenderer {
 public:
  /// kConfig: the target has no template (and none is given), or a broken one.
  static Result<std::unique_ptr<TalkRenderer>> open(const TargetTokens& target, const RenderOptions& options);
  ~TalkRenderer();

  /// The turn `at` of a talk, which must be the assistant's. `cut`: the answer was cut by length, so nothing
  /// after its last word is given. kInvalidArgument: the template refuses the talk, drops a part of it (tool
  /// calls, results, thinking, tools), or its prompt is not a prefix of the rendered turn.
  Result<RenderedTurn> render_turn(const Json& messages, const Json& tools, std::size_t at, bool cut) const;
  /// The same as tokens. kInvalidArgument also when the tokens do not give the text back.
  Result<TokenTurn> turn_tokens(const Json& messages, const Json& tools, std::size_t at, bool cut) const;
  /// The prompt before turn `at` alone.
  Result<std::string> render_prompt(const Json& messages, const Json& tools, std::size_t at) const;

  /// All turns of the assistant that answer something, as few sequences as are exact: a turn joins the
  /// sequence of the turn before it when its own prompt begins with just that sequence, else (a template that
  /// drops earlier thinking) it begins a new one. `last_cut`: the last turn was cut by length.
  Result<std::vector<TalkRow>> rows(const Json& messages, const Json& tools, bool last_cut) const;

  /// Token ids of a rendered prompt.
  Result<std::vector<std::int32_t>> prompt_ids(const std::string& text) const;

 private:
  TalkRenderer(const TargetTokens& target, RenderOptions options);
  Result<std::string> render(const Json& messages, const Json& tools, bool generation_prompt) const;
  Result<std::vector<std::int32_t>> answer_ids(const std::string& text, bool cut, bool* ends) const;

  const TargetTokens& target_;
  RenderOptions options_;
  std::unique_ptr<common_chat_template> template_;
  std::unique_ptr<common_chat_template> for_tools_;  // of a target that has another one for talks with tools
};

/// Appends a turn to the rows of its talk: to the last one when its prompt begins with exactly that row, else
/// as a new row. `place`: its place in the talk.
void join_turn(const TokenTurn& turn, std::size_t place, std::vector<TalkRow>* rows);

}  // namespace eaglet
