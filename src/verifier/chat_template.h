#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "verifier/target_tokens.h"

struct common_chat_templates;

namespace eaglet {

/// A conversation as the model wants to see it, up to where its answer starts.
struct RenderedPrompt {
  std::string text;
  std::string thinking_start;  // "<think>" and its like; empty when the model has no thinking
  std::vector<std::string> thinking_ends;
  bool thinking_is_open = false;  // the prompt itself ends inside a thinking span
};

/// The chat template that a target carries, rendered by llama.cpp's own engine. Not thread-safe.
class ChatTemplate {
 public:
  /// kConfig when it has no template or a broken one.
  static Result<std::unique_ptr<ChatTemplate>> open(const TargetTokens& target);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;
  /// `messages`: array of {role, content, ...}, system turns and earlier answers with reasoning_content
  /// allowed. kInvalidArgument when the template refuses them (its own words).
  /// `tools`: definitions, or null; a template that drops them, or calls and results in the messages, is
  /// refused too.
  Result<RenderedPrompt> render(const Json& messages, const Json& tools = Json()) const;

 private:
  ChatTemplate() = default;
  common_chat_templates* templates_ = nullptr;
  common_chat_templates* for_tools_ = nullptr;  // of a folder that has another one for talks with tools
  bool adds_bos_ = false;
};

}  // namespace eaglet
