#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// From a token of the vocabulary to the bytes it stands for in a text.
class PieceText {
 public:
  /// The "decoder" of a tokenizer.json; null: tokens are texts. kConfig: a kind that is not supported, by
  /// name. What a decoder does at the beginning or end of a whole text only (Strip) is left out: a token's
  /// bytes do not depend on its place.
  static Result<PieceText> from_json(const Json& json);
  static PieceText byte_level();
  std::string bytes_of(const std::string& token) const;

 private:
  enum class Kind { kByteLevel, kByteFallback, kReplace };
  struct Step {
    Kind kind;
    std::string from = {}, to = {};
  };
  Status add(const Json& json);
  std::vector<Step> steps_;
};

}  // namespace eaglet
