#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct re_pattern_buffer;

namespace eaglet {

/// A part of a text, from byte `begin` up to byte `end`.
struct TextRange {
  std::size_t begin = 0, end = 0;
};

/// What a tokenizer cuts texts by: a regular expression, or a plain text. Expressions are Oniguruma's, which
/// is also what the reference runs: one syntax, one meaning (PCRE2 has no "&&" in classes, and another \s).
class SplitPattern {
 public:
  /// kConfig when Oniguruma does not take the expression (its own words).
  static Result<SplitPattern> regex(const std::string& expression);
  static SplitPattern plain(std::string text);

  /// All matches in `text`, which is seen alone, from left to right; an empty one never behind another match.
  /// `text` is valid UTF-8 and has gone through text_for_patterns. kInvalidArgument when the expression needs
  /// too many steps on it.
  Status find_all(std::string_view text, std::vector<TextRange>* matches) const;
  /// Does a match begin at the first byte of `text`?
  bool matches_start(std::string_view text) const;

 private:
  SplitPattern() = default;
  std::shared_ptr<re_pattern_buffer> regex_;
  std::string plain_;
};

}  // namespace eaglet
