#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "tokenizer/split_pattern.h"

namespace eaglet {

/// A text and the pieces it was cut into; merges never cross their borders.
struct TextPieces {
  std::string text;
  std::string for_patterns;  // text_for_patterns(text); empty when that is the text itself
  std::vector<TextRange> pieces;
  bool at_start = false;   // the first piece begins the whole input
  bool continues = false;  // the text goes on from another one: nothing is put in front of the first piece
};

/// How a text is cut into pieces: by patterns, digits, spaces.
class PreTokenizer {
 public:
  /// The "pre_tokenizer" of a tokenizer.json; null: none. kConfig: a kind that is not supported, by name.
  static Result<PreTokenizer> from_json(const Json& json);
  /// What a tiktoken folder has: one pattern, each match and what lies between a piece of its own.
  static Result<PreTokenizer> by_regex(const std::string& expression);

  /// The pieces' bytes are what the vocabulary is made of, not their characters.
  bool byte_level() const { return byte_level_; }
  /// `all` comes with one piece. Empty pieces are left out.
  Status apply(TextPieces* all) const;

 private:
  enum class Kind { kSplit, kDigits, kMetaspace, kPrefixSpace };
  enum class Delimiter { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prepend { kNever, kFirst, kAlways };
  struct Step {
    Kind kind;
    std::vector<SplitPattern> pattern = {};  // kSplit: one
    Delimiter delimiter = Delimiter::kIsolated;
    bool invert = false;      // kSplit: what lies between the matches is the delimiter
    bool individual = false;  // kDigits
    bool split = true;        // kMetaspace
    Prepend prepend = Prepend::kNever;
    std::string space = {};  // kMetaspace: what stands for a space
  };
  struct Part {
    TextRange range;
    bool is_delimiter;
  };

  static std::optional<Delimiter> delimiter_of(const std::string& behavior);
  Status add(const Json& json);
  Status add_split(const Json& json);
  Status add_metaspace(const Json& json);
  Status add_byte_level(const Json& json);
  static Status split(const Step& step, TextPieces* all);
  static void split_digits(bool individual, TextPieces* all);
  static void metaspace(const Step& step, TextPieces* all);
  static void prefix_space(TextPieces* all);
  static void join_parts(std::vector<Part> parts, Delimiter delimiter, std::vector<TextRange>* out);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace eaglet
