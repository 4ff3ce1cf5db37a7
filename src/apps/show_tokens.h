#pragma once

#include <string>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet::apps {

/// A text as the tokenizer of a target (GGUF file or transformers folder) cuts it: {"ids", "pieces",
/// "before", "behind"}, the last two being what the tokenizer puts around a plain text. A prompt of a chat is
/// what its template wrote, without them.
Result<Json> tokens_json(const std::string& model_path, const std::string& text);
/// The same to read: one token a line.
std::string tokens_text(const Json& tokens);

}  // namespace eaglet::apps
