#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet {

/// The special tokens behind the `tokens` tokens of a Kimi folder's tiktoken.model: those that
/// tokenizer_config.json names, at their ids, and reserved ones between them. Source: tokenization_kimi.py.
/// kConfig when the folder is of another family: what its Python code says is not known.
Result<std::vector<std::string>> kimi_special_tokens(const std::string& folder, std::size_t tokens);

}  // namespace eaglet
