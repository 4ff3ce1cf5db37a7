#include "verifier/talk_renderer.h"

#include <chat-auto-parser.h>
#include <chat.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "formats/json_field.h"
#include "formats/reasoning.h"
#include "verifier/llama_log.h"

namespace eaglet {
namespace {

Status refused(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, what);
}

/// As the template's author may have called the thinking: each name is there.
Json for_template(const Json& messages, std::size_t count) {
  Json turns = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    Json turn = messages[i];
    if (const Json* reasoning = json_field(turn, "reasoning_content")) {
      const Json text = *reasoning;  // a new member moves the others
      turn["reasoning"] = text;
      turn["thinking"] = text;
    }
    turns.push_back(std::move(turn));
  }
  return turns;
}

/// Is `part` in `text`, as it is or as it stands inside a JSON text?
bool holds(const std::string& text, const std::string& part) {
  const std::string wanted = trimmed_text(part);
  if (wanted.empty() || text.find(wanted) != std::string::npos) return true;
  const std::string quoted = Json(wanted).dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string escaped = Json(wanted).dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.find(quoted.substr(1, quoted.size() - 2)) != std::string::npos ||
         text.find(escaped.substr(1, escaped.size() - 2)) != std::string::npos;
}

/// The words of each call must be there.
Status check_calls(const Json& turn, const std::string& text, std::size_t number) {
  const Json* calls = json_field(turn, "tool_calls");
  if (calls == nullptr) return {};
  for (const Json& call : *calls) {
    const Json& function = call["function"];
    bool whole = holds(text, function["name"].get<std::string>());
    if (function["arguments"].is_object())
      for (const auto& [key, value] : function["arguments"].items())
        whole = whole && holds(text, key) && (!value.is_string() || holds(text, value.get<std::string>()));
    if (!whole)
      return refused(fmt::format("the chat template does not render the tool call of turn {} ({})", number,
                                 function["name"].get<std::string>()));
  }
  return {};
}

/// Length of an empty think block at the start of an answer, 0 when there is none.
std::size_t empty_thinking(const std::string& answer) {
  for (const ThinkingTags& tags : known_thinking_tags()) {
    const std::size_t first = answer.find_first_not_of(" \t\r\n");
    if (first == std::string::npos || answer.compare(first, tags.open.size(), tags.open) != 0) continue;
    std::size_t at = answer.find_first_not_of(" \t\r\n", first + tags.open.size());
    if (at == std::string::npos || answer.compare(at, tags.close.size(), tags.close) != 0) return 0;
    at = answer.find_first_not_of(" \t\r\n", at + tags.close.size());
    return at == std::string::npos ? answer.size() : at;
  }
  return 0;
}

/// Where the turn's own last word ends in `answer`; npos when a part of it is not there.
std::size_t end_of_words(const Json& turn, const std::string& answer) {
  std::size_t end = 0;
  for (const char* name : {"reasoning_content", "content"}) {
    const Json* value = json_field(turn, name);
    const std::string words = value != nullptr ? trimmed_text(value->get<std::string>()) : std::string();
    if (words.empty()) continue;
    // The content is the last of its kind: the same words may stand in the thinking too.
    const std::size_t at = std::string(name) == "content" ? answer.rfind(words) : answer.find(words, end);
    if (at == std::string::npos || at < end) return std::string::npos;
    end = at + words.size();
  }
  return end;
}

}  // namespace

Status check_tools_rendered(const Json& messages, const Json& tools, std::size_t count,
                            const std::string& text) {
  if (tools.is_array())
    for (const Json& tool : tools) {
      const Json* function = json_field(tool, "function");
      const Json* name = function != nullptr ? json_field(*function, "name") : nullptr;
      if (name != nullptr && name->is_string() && !holds(text, name->get<std::string>()))
        return refused("the chat template does not render the tools (" + name->get<std::string>() + ")");
    }
  for (std::size_t i = 0; i < count; ++i) {
    const Json& turn = messages[i];
    EAGLET_RETURN_IF_ERROR(check_calls(turn, text, i + 1));
    if (turn["role"] == "tool" && !holds(text, turn["content"].get<std::string>()))
      return refused(fmt::format("the chat template does not render the tool's result in turn {}", i + 1));
  }
  return {};
}

bool has_chat_template(const TargetTokens& target) {
  return !target.chat_template(false).empty();
}

TalkRenderer::TalkRenderer(const TargetTokens& target, RenderOptions options)
    : target_(target), options_(std::move(options)) {}
TalkRenderer::~TalkRenderer() = default;

Result<std::unique_ptr<TalkRenderer>> TalkRenderer::open(const TargetTokens& target,
                                                         const RenderOptions& options) {
  quiet_llama_log();
  const std::string& path = target.facts().path;
  std::string text = options.template_text, tools_text;
  if (text.empty()) {
    tools_text = target.chat_template(true);
    text = target.chat_template(false);
    if (text.empty())
      return Status(StatusCode::kConfig, "the model carries no chat template", path,
                    "give one with --chat-template FILE (chat_template.jinja of the model's folder)");
  }
  std::unique_ptr<TalkRenderer> renderer(new TalkRenderer(target, options));
  try {
    const std::string bos = target.bos_text(), eos = target.eos_text();
    renderer->template_ = std::make_unique<common_chat_template>(text, bos, eos);
    if (!tools_text.empty() && tools_text != text)
      renderer->for_tools_ = std::make_unique<common_chat_template>(tools_text, bos, eos);
  } catch (const std::exception& error) {
    return Status(StatusCode::kConfig, std::string("the chat template is broken: ") + error.what(), path,
                  "give a corrected one with --chat-template FILE");
  }
  return renderer;
}

Result<std::string> TalkRenderer::render(const Json& messages, const Json& tools,
                                         bool generation_prompt) const {
  try {
    autoparser::generation_params inputs;
    inputs.messages = common_json::parse(json_line(messages));
    if (tools.is_array()) inputs.tools = common_json::parse(json_line(tools));
    if (options_.template_arguments.is_object()) {
      inputs.extra_context = common_json::parse(json_line(options_.template_arguments));
      if (const Json* thinks = json_field(options_.template_arguments, "enable_thinking"))
        inputs.enable_thinking = thinks->is_boolean() ? thinks->get<bool>() : true;
    }
    inputs.add_generation_prompt = generation_prompt;
    // A bos text that the template writes goes where the tokenizer will add the token.
    inputs.add_bos = target_.adds_bos();
    return common_chat_template_direct_apply(
        tools.is_array() && for_tools_ != nullptr ? *for_tools_ : *template_, inputs);
  } catch (const std::exception& error) {
    return refused(std::string("the chat template refuses the talk: ") + error.what());
  }
}

Result<std::string> TalkRenderer::render_prompt(const Json& messages, const Json& tools,
                                                std::size_t at) const {
  EAGLET_ASSIGN_OR_RETURN(const std::string text, render(for_template(messages, at), tools, true));
  EAGLET_RETURN_IF_ERROR(check_tools_rendered(messages, tools, at, text));
  return text;
}

Result<RenderedTurn> TalkRenderer::render_turn(const Json& messages, const Json& tools, std::size_t at,
                                               bool cut) const {
  RenderedTurn turn;
  EAGLET_ASSIGN_OR_RETURN(turn.prompt, render_prompt(messages, tools, at));
  EAGLET_ASSIGN_OR_RETURN(const std::string whole, render(for_template(messages, at + 1), tools, false));
  if (whole.compare(0, turn.prompt.size(), turn.prompt) != 0)
    return refused(
        fmt::format("the prompt that the template gives for turn {} does not begin the rendered "
                    "turn, so what the target wrote cannot be told from what it saw",
                    at + 1));
  turn.answer = whole.substr(turn.prompt.size());
  EAGLET_RETURN_IF_ERROR(check_calls(messages[at], turn.answer, at + 1));
  const std::size_t end = end_of_words(messages[at], turn.answer);
  if (end == std::string::npos)
    return refused(
        fmt::format("the chat template does not render the thinking or the text of turn {} as "
                    "they are",
                    at + 1));
  if (!options_.learn_empty_thinking) {
    const std::size_t empty = empty_thinking(turn.answer);
    turn.prompt += turn.answer.substr(0, empty);
    turn.answer.erase(0, empty);
    if (cut) turn.answer.resize(end - std::min(end, empty));
  } else if (cut) {
    turn.answer.resize(end);
  }
  return turn;
}

Result<std::vector<std::int32_t>> TalkRenderer::prompt_ids(const std::string& text) const {
  return target_.prompt_ids(text);
}

Result<std::vector<std::int32_t>> TalkRenderer::answer_ids(const std::string& text, bool cut,
                                                           bool* ends) const {
  EAGLET_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, target_.answer_ids(text));
  std::string back;
  for (const std::int32_t id : ids) back += target_.piece(id, true);
  if (back != text)
    return refused("the tokens of the answer do not give its text back (is this the model's tokenizer?)");
  *ends = false;
  if (cut) return ids;
  const auto last =
      std::find_if(ids.rbegin(), ids.rend(), [this](std::int32_t id) { return target_.ends(id); });
  if (last == ids.rend())
    return refused("no token of the rendered turn ends it (is this the model's template?)");
  *ends = true;
  ids.erase(last.base(), ids.end());
  return ids;
}

Result<TokenTurn> TalkRenderer::turn_tokens(const Json& messages, const Json& tools, std::size_t at,
                                            bool cut) const {
  EAGLET_ASSIGN_OR_RETURN(const RenderedTurn text, render_turn(messages, tools, at, cut));
  TokenTurn turn;
  EAGLET_ASSIGN_OR_RETURN(turn.prompt, prompt_ids(text.prompt));
  EAGLET_ASSIGN_OR_RETURN(turn.answer, answer_ids(text.answer, cut, &turn.ends));
  if (turn.answer.empty()) return refused(fmt::format("turn {} has no tokens", at + 1));
  return turn;
}

Result<std::vector<TalkRow>> TalkRenderer::rows(const Json& messages, const Json& tools,
                                                bool last_cut) const {
  std::vector<TalkRow> rows;
  bool asked = false;
  for (std::size_t at = 0; at < messages.size(); ++at) {
    const auto& role = messages[at]["role"].get_ref<const std::string&>();
    if (role != "assistant" || !asked) {
      asked = asked || role == "user" || role == "tool";
      continue;
    }
    const bool cut = last_cut && at + 1 == messages.size();
    EAGLET_ASSIGN_OR_RETURN(const TokenTurn turn, turn_tokens(messages, tools, at, cut));
    join_turn(turn, at, &rows);
  }
  return rows;
}

void join_turn(const TokenTurn& turn, std::size_t place, std::vector<TalkRow>* rows) {
  const auto& prompt = turn.prompt;
  const bool continues =
      !rows->empty() && rows->back().input_ids.size() <= prompt.size() &&
      std::equal(rows->back().input_ids.begin(), rows->back().input_ids.end(), prompt.begin());
  if (!continues) rows->emplace_back();
  TalkRow& row = rows->back();
  row.input_ids.insert(row.input_ids.end(),
                       prompt.begin() + static_cast<std::ptrdiff_t>(row.input_ids.size()), prompt.end());
  row.loss_mask.resize(row.input_ids.size(), 0);
  row.input_ids.insert(row.input_ids.end(), turn.answer.begin(), turn.answer.end());
  row.loss_mask.resize(row.input_ids.size(), 1);
  row.turns.push_back(place);
  row.ends = turn.ends;
}

}  // namespace eaglet
