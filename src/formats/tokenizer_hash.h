#pragma once

#include <string>

#include "base/status.h"

namespace eaglet {

/// 16 hex digits over a target's tokens: the token texts of a GGUF, or the tokenizer file of a transformers
/// folder. Empty when the target carries no tokenizer. A vocabulary map keeps it: ids mean nothing under
/// another one.
Result<std::string> tokenizer_hash(const std::string& target);

}  // namespace eaglet
