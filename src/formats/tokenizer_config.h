#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"

namespace eaglet {

/// What tokenizer_config.json and the files beside it say (docs/formats/tokenizer-json.md).
struct TokenizerConfig {
  std::string bos_token, eos_token;          // texts; empty: none
  std::string chat_template, tool_template;  // Jinja; empty: none. The second one is for talks with tools.
  struct Added {
    std::string text;
    bool special = false;
  };
  std::map<std::int32_t, Added> added_tokens;  // of added_tokens_decoder, by id
};

/// kDataLoss: a file that is there is damaged. Files that are not there say nothing. kConfig: a setting that
/// changes ids and is not supported, by name.
Result<TokenizerConfig> read_tokenizer_config(const std::string& folder);

}  // namespace eaglet
