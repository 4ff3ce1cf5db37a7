#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/piece_text.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/special_frame.h"

namespace eaglet {

/// Where a text that becomes tokens stands.
enum class TextPlace {
  kStart,      // alone
  kContinues,  // behind other text of the same input: nothing is put in front of it
};

/// The tokenizer of a transformers folder (docs/formats/tokenizer-json.md): the ids that the tokenizers
/// library gives, one for one. A part that is not supported is refused when it is loaded. Not thread-safe.
class Tokenizer {
 public:
  /// From tokenizer.json, or tiktoken.model of the Kimi family. kNotFound: neither is there; kConfig,
  /// kDataLoss: see formats/tokenizer_file.h and the parts.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& folder);
  static Result<std::unique_ptr<Tokenizer>> from_file(const TokenizerFile& file);
  /// A tiktoken vocabulary, cut by `pattern`; `special` get the ids behind it.
  static Result<std::unique_ptr<Tokenizer>> from_ranks(const std::vector<std::string>& tokens,
                                                       const std::string& pattern,
                                                       const std::vector<std::string>& special);

  /// Ids of a text; added tokens written out in it become their ids. Bytes that are no UTF-8 count as U+FFFD.
  /// kInvalidArgument when a pattern needs too many steps.
  Result<std::vector<std::int32_t>> encode(std::string_view text, TextPlace place = TextPlace::kStart) const;
  /// What the tokenizer itself puts around one text.
  const SpecialFrame& frame() const { return frame_; }

  /// One more than the largest id.
  std::int32_t size() const { return static_cast<std::int32_t>(texts_.size()); }
  /// The bytes that a token stands for; an added token's are its text. Empty for an id that has no token.
  const std::string& piece(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  /// Id of an added token or a token of the vocabulary, by its text; -1: none.
  std::int32_t id_of(const std::string& text) const;

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };
  explicit Tokenizer(BpeModel model) : model_(std::move(model)) {}
  Status add_tokens(const std::vector<AddedToken>& added);
  void set_token(std::int32_t id, std::string bytes, bool special);
  Status encode_part(std::string part, bool at_start, bool continues, std::vector<std::int32_t>* ids) const;
  Status encode_pieces(std::string text, bool at_start, bool continues, std::vector<std::int32_t>* ids) const;

  BpeModel model_;
  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  SpecialFrame frame_;
  AddedTokenFinder added_, added_normalized_;
  std::unordered_map<std::string, std::int32_t> ids_;  // by text
  std::vector<Token> texts_;                           // by id
};

}  // namespace eaglet
