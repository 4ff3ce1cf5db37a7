#include "verifier/chat_template.h"

#include <chat.h>
#include <llama.h>

#include <exception>

#include "formats/tool_calls.h"
#include "verifier/llama_log.h"
#include "verifier/talk_renderer.h"

namespace eaglet {
namespace {

std::string trimmed_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\t')) text.pop_back();
  return text;
}

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::open(const TargetTokens& target) {
  quiet_llama_log();
  const std::string& path = target.facts().path;
  const std::string text = target.chat_template(false), tools_text = target.chat_template(true);
  if (text.empty())
    return Status(StatusCode::kConfig, "the model carries no chat template", path,
                  "use an instruction-tuned model, or give prompts as prompt_ids");
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate());
  try {
    // libllama's model knows its own two templates; a folder's are given as texts.
    const std::string bos = target.bos_text(), eos = target.eos_text();
    const llama_model* model = target.model();
    chat->templates_ = common_chat_templates_init(model, model != nullptr ? "" : text, bos, eos).release();
    if (model == nullptr && tools_text != text)
      chat->for_tools_ = common_chat_templates_init(nullptr, tools_text, bos, eos).release();
  } catch (const std::exception& error) {
    return Status(StatusCode::kConfig, std::string("the model's chat template is broken: ") + error.what(),
                  path, "use a corrected conversion of the model, or give prompts as prompt_ids");
  }
  chat->adds_bos_ = target.adds_bos();
  return chat;
}

ChatTemplate::~ChatTemplate() {
  common_chat_templates_free(templates_);
  common_chat_templates_free(for_tools_);
}

Result<RenderedPrompt> ChatTemplate::render(const Json& messages, const Json& tools) const {
  try {
    common_chat_templates_inputs inputs;
    inputs.messages =
        common_chat_msgs_parse_oaicompat(common_json::parse(json_line(with_text_arguments(messages))));
    if (tools.is_array())
      inputs.tools = common_chat_tools_parse_oaicompat(common_json::parse(json_line(tools)));
    inputs.add_generation_prompt = true;
    inputs.reasoning_format = COMMON_REASONING_FORMAT_NONE;
    // The engine strips the bos text that a template writes when the tokeniser will add it: exactly one
    // remains.
    inputs.add_bos = adds_bos_;
    const auto* templates = tools.is_array() && for_tools_ != nullptr ? for_tools_ : templates_;
    const common_chat_params params = common_chat_templates_apply(templates, inputs);
    RenderedPrompt prompt;
    prompt.text = params.prompt;
    EAGLET_RETURN_IF_ERROR(check_tools_rendered(messages, tools, messages.size(), prompt.text));
    prompt.thinking_start = params.thinking_start_tag;
    prompt.thinking_ends = params.thinking_end_tags;
    prompt.thinking_is_open =
        !prompt.thinking_start.empty() && trimmed_end(prompt.text).ends_with(prompt.thinking_start);
    return prompt;
  } catch (const std::exception& error) {
    return Status(StatusCode::kInvalidArgument,
                  std::string("the chat template refuses the messages: ") + error.what());
  }
}

}  // namespace eaglet
