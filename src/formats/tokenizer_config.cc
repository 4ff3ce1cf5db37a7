#include "formats/tokenizer_config.h"

#include <utility>

#include "base/files.h"
#include "formats/json_field.h"

namespace eaglet {
namespace {

Result<Json> object_or_empty(const std::string& path) {
  if (!path_exists(path)) return Json(Json::object());
  EAGLET_ASSIGN_OR_RETURN(Json json, read_json_file(path));
  if (!json.is_object())
    return Status(StatusCode::kDataLoss, "not a JSON object", path, "get the tokenizer's files again");
  return json;
}

/// "text" or {"content": "text", ...}.
std::string token_text(const Json& json, const char* name) {
  const Json* token = json_field(json, name);
  if (token != nullptr && token->is_object()) token = json_field(*token, "content");
  return token != nullptr && token->is_string() ? token->get<std::string>() : std::string();
}

/// One template, or a list of named ones of which two have a use here.
void take_templates(const Json& json, TokenizerConfig* config) {
  const Json* value = json_field(json, "chat_template");
  if (value == nullptr) return;
  if (value->is_string()) config->chat_template = value->get<std::string>();
  if (!value->is_array()) return;
  for (const Json& one : *value) {
    const std::string name = token_text(one, "name");
    if (name == "default") config->chat_template = token_text(one, "template");
    if (name == "tool_use") config->tool_template = token_text(one, "template");
  }
}

/// Templates in files of their own win: newer versions of the transformers library write them.
Status take_template_files(const std::string& folder, TokenizerConfig* config) {
  for (const auto& [name, text] :
       {std::pair("/chat_template.jinja", &config->chat_template),
        std::pair("/additional_chat_templates/tool_use.jinja", &config->tool_template)}) {
    if (!path_exists(folder + name)) continue;
    EAGLET_ASSIGN_OR_RETURN(*text, read_file(folder + name));
  }
  return {};
}

Status take_added(const Json& json, const std::string& path, TokenizerConfig* config) {
  const Json* decoder = json_field(json, "added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) return {};
  for (const auto& [key, token] : decoder->items()) {
    if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos ||
        !token.is_object())
      return Status(StatusCode::kDataLoss, "added_tokens_decoder has an entry without id or content", path,
                    "get the tokenizer's files again");
    const Json* special = json_field(token, "special");
    config->added_tokens[static_cast<std::int32_t>(std::stol(key))] = {
        token_text(token, "content"), special != nullptr && *special == Json(true)};
  }
  return {};
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  const std::string path = folder + "/tokenizer_config.json";
  EAGLET_ASSIGN_OR_RETURN(const Json json, object_or_empty(path));
  EAGLET_ASSIGN_OR_RETURN(const Json map, object_or_empty(folder + "/special_tokens_map.json"));
  if (const Json* split = json_field(json, "split_special_tokens"); split != nullptr && *split == Json(true))
    return Status(StatusCode::kConfig, "split_special_tokens is not supported", path,
                  "without it special tokens in a text are one token each");
  for (const auto& [name, text] :
       {std::pair("bos_token", &config.bos_token), std::pair("eos_token", &config.eos_token)}) {
    *text = token_text(json, name);
    if (text->empty()) *text = token_text(map, name);
  }
  EAGLET_RETURN_IF_ERROR(take_added(json, path, &config));
  take_templates(json, &config);
  EAGLET_RETURN_IF_ERROR(take_template_files(folder, &config));
  return config;
}

}  // namespace eaglet
