#include "client/question.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "formats/json_field.h"
#include "formats/reasoning.h"
#include "formats/tool_calls.h"

namespace eaglet {
namespace {

/// Empty when the field is no list of token ids.
std::vector<std::int32_t> ids_of(const Json& row, const char* name) {
  std::vector<std::int32_t> ids;
  const Json* list = json_field(row, name);
  if (list == nullptr || !list->is_array()) return ids;
  ids.reserve(list->size());
  for (const Json& value : *list) {
    if (!value.is_number_integer()) return {};
    const auto id = value.get<std::int64_t>();
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) return {};
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

std::string text_of(const Json& row, const char* name) {
  const Json* value = json_field(row, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::int64_t number_of(const Json& row, const char* name) {
  const Json* value = json_field(row, name);
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : 0;
}

/// Statuses that are about the moment, not about the request.
bool worth_asking_again(int status) {
  return status == 408 || status == 409 || status == 425 || status == 429;
}

bool ends_with_open_tag(const std::string& prompt) {
  const std::string text = trimmed_text(prompt);
  for (const ThinkingTags& tags : known_thinking_tags())
    if (text.ends_with(tags.open)) return true;
  return false;
}

}  // namespace

Question::Question(const ServerFacts& server, const Sampling& sampling, Asking asking)
    : server_(server), sampling_(sampling), asking_(std::move(asking)) {
  const bool ids = !asking_.prompt_ids.empty();
  switch (server_.kind) {
    case ServerKind::kLlama:
      step_ = ids ? Step::kComplete : Step::kRender;
      break;
    case ServerKind::kSglang:
      step_ = ids ? Step::kComplete : Step::kTokenize;
      break;
    default:
      step_ = ids ? Step::kComplete : Step::kChat;
  }
  prompt_opens_thinking_ = ends_with_open_tag(asking_.prompt_text);
}

std::string Question::path() const {
  const bool llama = server_.kind == ServerKind::kLlama;
  switch (step_) {
    case Step::kRender:
      return "/apply-template";
    case Step::kTokenize:
      return "/tokenize";
    case Step::kChat:
      return "/v1/chat/completions";
    case Step::kComplete:
      return llama ? "/completion" : server_.kind == ServerKind::kSglang ? "/generate" : "/v1/completions";
  }
  return "/";
}

/// The fields of OpenAI's routes; other servers have their own names.
Json Question::sampling_fields() const {
  Json fields = {{"max_tokens", sampling_.max_tokens}, {"temperature", sampling_.temperature}};
  if (sampling_.temperature > 0) {
    fields["top_p"] = sampling_.top_p;
    fields["seed"] = asking_.seed;
  }
  if (server_.kind == ServerKind::kVllm) fields["return_token_ids"] = true;
  return fields;
}

std::string Question::body() const {
  Json body;
  const bool llama = server_.kind == ServerKind::kLlama, sglang = server_.kind == ServerKind::kSglang;
  if (step_ == Step::kTokenize) {
    body =
        llama
            ? Json{{"content", asking_.prompt_text}, {"add_special", true}, {"parse_special", true}}
            : Json{{"model", server_.model}, {"prompt", asking_.prompt_text}, {"add_special_tokens", false}};
    return json_line(body);
  }
  if (step_ == Step::kRender || step_ == Step::kChat) {
    body = {{"model", server_.model}, {"messages", with_text_arguments(asking_.messages)}};
    if (asking_.tools.is_array()) body["tools"] = asking_.tools;
    if (step_ == Step::kChat) body.update(sampling_fields());
  } else if (llama) {
    // Every cut of the distribution that llama-server makes unasked is switched off.
    body = {{"prompt", asking_.prompt_ids},
            {"n_predict", sampling_.max_tokens},
            {"temperature", sampling_.temperature},
            {"top_p", sampling_.top_p},
            {"top_k", 0},
            {"min_p", 0.0},
            {"repeat_penalty", 1.0},
            {"seed", asking_.seed},
            {"return_tokens", true},
            {"cache_prompt", true}};
  } else if (sglang) {
    body = {{"input_ids", asking_.prompt_ids},
            {"sampling_params",
             {{"max_new_tokens", sampling_.max_tokens},
              {"temperature", sampling_.temperature},
              {"top_p", sampling_.top_p}}}};
    if (sampling_.temperature > 0) body["sampling_params"]["sampling_seed"] = asking_.seed;
    if (sampling_.extra.is_object()) body["sampling_params"].update(sampling_.extra);
    return json_line(body);
  } else {
    body = {{"model", server_.model}, {"prompt", asking_.prompt_ids}};
    body.update(sampling_fields());
  }
  if (sampling_.extra.is_object()) body.update(sampling_.extra);
  return json_line(body);
}

bool Question::finish(Outcome outcome, const std::string& message) {
  answer_.outcome = outcome;
  answer_.message = message;
  return true;
}

bool Question::refuse(const HttpReply& reply) {
  int code = 0;
  const std::string message = error_message(reply.body, &code);
  answer_.status = reply.status;
  const bool own_fault = reply.status >= 400 && reply.status < 500 && !worth_asking_again(reply.status);
  return finish(own_fault ? Outcome::kRefused : Outcome::kBroken,
                reply.status == 0 ? reply.error : fmt::format("{}: {}", reply.status, message));
}

bool Question::take(const HttpReply& reply) {
  const Step step = step_;
  answer_ = ServedAnswer();
  if (!reply.ok()) return refuse(reply);
  const auto parsed = parse_json(reply.body);
  if (!parsed.ok() || !parsed->is_object())
    return finish(Outcome::kBroken,
                  "the reply is " + (parsed.ok() ? "no JSON object" : parsed.status().what()));
  const Json* kind = json_field(*parsed, "object");
  if (json_field(*parsed, "error") != nullptr || (kind != nullptr && *kind == "error")) {
    // An error in a reply that says 200: its own code tells whose fault it is.
    int code = 0;
    const std::string message = error_message(reply.body, &code);
    answer_.status = code;
    return finish(
        code >= 400 && code < 500 && !worth_asking_again(code) ? Outcome::kRefused : Outcome::kBroken,
        message);
  }
  switch (step) {
    case Step::kRender:
      return take_rendered(*parsed);
    case Step::kTokenize:
      return take_tokens(*parsed);
    case Step::kChat:
      return take_chat(*parsed);
    case Step::kComplete:
      if (server_.kind == ServerKind::kLlama) return take_llama(*parsed);
      if (server_.kind == ServerKind::kSglang) return take_sglang(*parsed);
      return take_completion(*parsed);
  }
  return finish(Outcome::kBroken, "no such step");
}

bool Question::take_rendered(const Json& reply) {
  asking_.prompt_text = text_of(reply, "prompt");
  if (asking_.prompt_text.empty()) return finish(Outcome::kBroken, "/apply-template gave no prompt");
  prompt_opens_thinking_ = ends_with_open_tag(asking_.prompt_text);
  step_ = Step::kTokenize;
  return false;
}

bool Question::take_tokens(const Json& reply) {
  asking_.prompt_ids = ids_of(reply, "tokens");
  if (asking_.prompt_ids.empty()) return finish(Outcome::kBroken, "/tokenize gave no token ids");
  step_ = Step::kComplete;
  return false;
}

bool Question::finish_turn(bool thinking_open) {
  const Json& turn = answer_.turn;
  const bool content = !trimmed_text(turn["content"].get<std::string>()).empty();
  const bool calls = turn.contains("tool_calls");
  const bool reasoning = turn.contains("reasoning_content");
  if (!content && !calls && !reasoning) return finish(Outcome::kEmpty, "the reply is empty");
  if (!content && !calls && !answer_.cut && !thinking_open)
    return finish(Outcome::kEmpty, "the reply has thinking, but no answer");
  answer_.cut = answer_.cut || thinking_open;
  answer_.cut_while_thinking = !content && !calls;
  return finish(Outcome::kAnswer, {});
}

bool Question::take_chat(const Json& reply) {
  const Json* choices = json_field(reply, "choices");
  if (choices == nullptr || !choices->is_array())
    return finish(Outcome::kBroken, "the reply has no list of choices");
  if (choices->empty()) return finish(Outcome::kEmpty, "the reply has no choice");
  const Json& choice = (*choices)[0];
  const Json* message = json_field(choice, "message");
  if (message == nullptr || !message->is_object())
    return finish(Outcome::kBroken, "the reply's choice has no message");
  const std::string reason = text_of(choice, "finish_reason");
  if (reason == "abort" || reason == "error")
    return finish(Outcome::kBroken, "the server gave up on the answer (" + reason + ")");
  if (reason == "content_filter") return finish(Outcome::kRefused, "the server's filter cut the answer");
  answer_.cut = reason == "length" || reason == "max_tokens";
  const Json* stop = json_field(choice, "stop_reason");
  answer_.ended_by_stop = stop != nullptr && stop->is_string();
  if (const Json* usage = json_field(reply, "usage")) {
    answer_.prompt_tokens = number_of(*usage, "prompt_tokens");
    answer_.answer_tokens = number_of(*usage, "completion_tokens");
  }
  answer_.prompt_ids = ids_of(reply, "prompt_token_ids");
  answer_.answer_ids = ids_of(choice, "token_ids");
  const Json* content = json_field(*message, "content");
  if (content != nullptr && !content->is_string())
    return finish(Outcome::kBroken, "the reply's content is " + json_shown(*content) + ", must be a text");
  answer_.text = content != nullptr ? content->get<std::string>() : std::string();
  Json turn = {{"role", "assistant"}, {"content", answer_.text}};
  for (const auto& [key, value] : message->items())
    if (key.find("reason") != std::string::npos || key.find("thin") != std::string::npos ||
        key.find("thought") != std::string::npos)
      turn[key] = value;
  std::vector<std::string> warnings;
  const Result<bool> open = unify_reasoning(&turn, true, &warnings);
  if (!open.ok()) return finish(Outcome::kBroken, "the reply's " + open.status().what());
  Result<Json> calls = plain_tool_calls(*message);
  if (!calls.ok()) return finish(answer_.cut ? Outcome::kEmpty : Outcome::kBroken, calls.status().what());
  if (!calls->empty()) turn["tool_calls"] = std::move(*calls);
  answer_.turn = std::move(turn);
  return finish_turn(*open);
}

bool Question::take_plain_text(std::string text) {
  answer_.text = std::move(text);
  answer_.turn = {{"role", "assistant"}, {"content", answer_.text}};
  std::vector<std::string> warnings;
  bool open = false;
  if (const auto split = split_inline_thinking(answer_.text, prompt_opens_thinking_)) {
    answer_.turn["content"] = split->content;
    if (!split->reasoning.empty()) answer_.turn["reasoning_content"] = split->reasoning;
    open = !split->closed;
  } else if (prompt_opens_thinking_) {  // the prompt opened it and the answer never closed it
    answer_.turn["content"] = "";
    answer_.turn["reasoning_content"] = trimmed_text(answer_.text);
    open = true;
  }
  return finish_turn(open);
}

bool Question::take_completion(const Json& reply) {
  const Json* choices = json_field(reply, "choices");
  if (choices == nullptr || !choices->is_array())
    return finish(Outcome::kBroken, "the reply has no list of choices");
  if (choices->empty()) return finish(Outcome::kEmpty, "the reply has no choice");
  const Json& choice = (*choices)[0];
  answer_.cut = text_of(choice, "finish_reason") == "length";
  answer_.prompt_ids = asking_.prompt_ids;
  answer_.answer_ids = ids_of(choice, "token_ids");
  answer_.prompt_tokens = static_cast<std::int64_t>(asking_.prompt_ids.size());
  answer_.answer_tokens = static_cast<std::int64_t>(answer_.answer_ids.size());
  return take_plain_text(text_of(choice, "text"));
}

bool Question::take_llama(const Json& reply) {
  const Json* truncated = json_field(reply, "truncated");
  if (truncated != nullptr && truncated->is_boolean() && truncated->get<bool>())
    return finish(Outcome::kRefused, "prompt and answer do not fit the server's context");
  const std::string stop = text_of(reply, "stop_type");
  answer_.cut = stop == "limit";
  answer_.ended_by_stop = stop == "word";
  answer_.prompt_ids = asking_.prompt_ids;
  answer_.answer_ids = ids_of(reply, "tokens");
  answer_.prompt_tokens = static_cast<std::int64_t>(asking_.prompt_ids.size());
  answer_.answer_tokens = static_cast<std::int64_t>(answer_.answer_ids.size());
  if (const Json* timings = json_field(reply, "timings")) {
    if (json_field(*timings, "draft_n") != nullptr) answer_.drafted = number_of(*timings, "draft_n");
    if (json_field(*timings, "draft_n_accepted") != nullptr)
      answer_.accepted = number_of(*timings, "draft_n_accepted");
  }
  if (json_field(reply, "content") == nullptr) return finish(Outcome::kBroken, "the reply has no content");
  return take_plain_text(text_of(reply, "content"));
}

bool Question::take_sglang(const Json& reply) {
  const Json* meta = json_field(reply, "meta_info");
  if (meta == nullptr) return finish(Outcome::kBroken, "the reply has no meta_info");
  const Json* finish_reason = json_field(*meta, "finish_reason");
  const std::string type = finish_reason != nullptr ? text_of(*finish_reason, "type") : std::string();
  if (type == "abort")
    return finish(Outcome::kBroken,
                  "the server gave up on the answer: " + text_of(*finish_reason, "message"));
  answer_.cut = type == "length";
  if (json_field(*meta, "spec_verify_ct") != nullptr) answer_.passes = number_of(*meta, "spec_verify_ct");
  answer_.prompt_ids = asking_.prompt_ids;
  answer_.answer_ids = ids_of(reply, "output_ids");
  // The token that ended the answer is told apart by some versions.
  const Json* matched = finish_reason != nullptr ? json_field(*finish_reason, "matched") : nullptr;
  answer_.ended_by_stop = matched != nullptr && matched->is_string();
  if (type == "stop" && matched != nullptr && matched->is_number_integer() && !answer_.answer_ids.empty() &&
      answer_.answer_ids.back() != number_of(*finish_reason, "matched"))
    answer_.answer_ids.push_back(static_cast<std::int32_t>(number_of(*finish_reason, "matched")));
  answer_.prompt_tokens = static_cast<std::int64_t>(asking_.prompt_ids.size());
  answer_.answer_tokens = static_cast<std::int64_t>(answer_.answer_ids.size());
  return take_plain_text(text_of(reply, "text"));
}

}  // namespace eaglet
