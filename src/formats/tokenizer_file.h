#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// A token that is found in a text before anything else is done with it.
struct AddedToken {
  std::string text;
  std::int32_t id = -1;
  bool single_word = false;             // only where no letter or digit stands beside it
  bool lstrip = false, rstrip = false;  // takes the white space before or behind it along
  bool normalized = false;              // looked for in the normalised text, in its own normalised form
  bool special = false;
};

/// A tokenizer.json (docs/formats/tokenizer-json.md), its bytes only. The two long lists stand apart: as JSON
/// objects they would take seconds.
struct TokenizerFile {
  Json rest = Json::object();  // all but model.vocab and model.merges
  std::vector<std::pair<std::string, std::int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // the earlier the sooner
  std::vector<AddedToken> added;                            // ids as the file says
};

/// kDataLoss: not JSON, or no tokenizer; says which part. The vocabulary of a model that keeps it as a list
/// (Unigram) is left empty.
Result<TokenizerFile> parse_tokenizer_file(std::string_view text);
Result<TokenizerFile> read_tokenizer_file(const std::string& path);

/// A tiktoken file: the tokens' bytes by rank, which is their id. One "base64 rank" a line. kDataLoss.
Result<std::vector<std::string>> parse_tiktoken_file(std::string_view text);
Result<std::vector<std::string>> read_tiktoken_file(const std::string& path);

}  // namespace eaglet
