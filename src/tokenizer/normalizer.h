#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "tokenizer/split_pattern.h"

namespace eaglet {

/// What is done to a text before it is cut: Unicode normal forms, replacements, a text in front.
class TextNormalizer {
 public:
  /// The "normalizer" of a tokenizer.json; null: none. kConfig: a kind that is not supported, by name.
  static Result<TextNormalizer> from_json(const Json& json);
  bool empty() const { return steps_.empty(); }
  /// `continues`: the text goes on from another one, so nothing is put in front. Valid UTF-8 in and out.
  Result<std::string> apply(std::string text, bool continues) const;

 private:
  enum class Kind { kNfc, kNfd, kNfkc, kNfkd, kPrepend, kReplace };
  struct Step {
    Kind kind;
    std::string text;                   // what is put in front, or what replaces a match
    std::vector<SplitPattern> pattern;  // of kReplace: one
  };
  Status add(const Json& json);
  std::vector<Step> steps_;
};

/// {"String": text} or {"Regex": expression}.
Result<SplitPattern> pattern_from_json(const Json* json);
/// The member's text; kDataLoss when there is none.
Result<std::string> text_member(const Json& json, const char* name);
/// "type" of a part of the pipeline; "?" when it has none.
std::string type_of(const Json& json);

}  // namespace eaglet
