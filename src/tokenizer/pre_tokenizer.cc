#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "formats/json_field.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Status not_supported(const std::string& what) {
  return Status(
      StatusCode::kConfig, "the tokenizer's " + what + " is not supported", {},
      "known pre-tokenizers: Split, ByteLevel, Digits, Metaspace, Sequence; or use the model's GGUF");
}

bool flag_or(const Json& json, const char* name, bool absent) {
  const Json* value = json_field(json, name);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : absent;
}

/// Another text in pieces, built from the old one; keeps what patterns see in step.
class Rebuilt {
 public:
  explicit Rebuilt(TextPieces* all) : all_(all), two_(!all->for_patterns.empty()) {}
  void begin_piece() { begin_ = text_.size(); }
  void copy(std::size_t begin, std::size_t end) {
    text_.append(all_->text, begin, end - begin);
    if (two_) for_patterns_.append(all_->for_patterns, begin, end - begin);
  }
  void put(const std::string& text) {
    text_ += text;
    if (two_) for_patterns_ += text;
  }
  void end_piece() { pieces_.push_back({begin_, text_.size()}); }
  void take_over() {
    all_->text = std::move(text_);
    all_->for_patterns = std::move(for_patterns_);
    all_->pieces = std::move(pieces_);
  }

 private:
  TextPieces* all_;
  bool two_;
  std::string text_, for_patterns_;
  std::vector<TextRange> pieces_;
  std::size_t begin_ = 0;
};

void drop_empty(std::vector<TextRange>* pieces) {
  std::erase_if(*pieces, [](const TextRange& piece) { return piece.begin == piece.end; });
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const Json& json) {
  PreTokenizer made;
  if (!json.is_null()) EAGLET_RETURN_IF_ERROR(made.add(json));
  return made;
}

Result<PreTokenizer> PreTokenizer::by_regex(const std::string& expression) {
  PreTokenizer made;
  EAGLET_ASSIGN_OR_RETURN(SplitPattern pattern, SplitPattern::regex(expression));
  made.steps_.push_back({.kind = Kind::kSplit, .pattern = {std::move(pattern)}});
  made.byte_level_ = true;
  return made;
}

Status PreTokenizer::add(const Json& json) {
  const std::string type = type_of(json);
  // From ByteLevel on a text is its bytes' characters: no step that we know has a use for these.
  if (byte_level_) return not_supported("pre-tokenizer " + type + " behind a ByteLevel");
  if (type == "Sequence") {
    const Json* list = json_field(json, "pretokenizers");
    if (list == nullptr || !list->is_array())
      return Status(StatusCode::kDataLoss, "not a usable tokenizer.json: a Sequence has no pretokenizers");
    for (const Json& one : *list) EAGLET_RETURN_IF_ERROR(add(one));
    return {};
  }
  if (type == "Split") return add_split(json);
  if (type == "ByteLevel") return add_byte_level(json);
  if (type == "Metaspace") return add_metaspace(json);
  if (type == "Digits") {
    steps_.push_back({.kind = Kind::kDigits, .individual = flag_or(json, "individual_digits", false)});
    return {};
  }
  return not_supported("pre-tokenizer " + type);
}

std::optional<PreTokenizer::Delimiter> PreTokenizer::delimiter_of(const std::string& behavior) {
  if (behavior == "Removed") return Delimiter::kRemoved;
  if (behavior == "Isolated") return Delimiter::kIsolated;
  if (behavior == "MergedWithPrevious") return Delimiter::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return Delimiter::kMergedWithNext;
  if (behavior == "Contiguous") return Delimiter::kContiguous;
  return std::nullopt;
}

Status PreTokenizer::add_split(const Json& json) {
  Step step = {.kind = Kind::kSplit, .invert = flag_or(json, "invert", false)};
  const Result<std::string> behavior = text_member(json, "behavior");
  if (!behavior.ok()) return behavior.status();
  const std::optional<Delimiter> delimiter = delimiter_of(*behavior);
  if (!delimiter) return not_supported("behavior " + *behavior + " of a Split");
  step.delimiter = *delimiter;
  EAGLET_ASSIGN_OR_RETURN(SplitPattern pattern, pattern_from_json(json_field(json, "pattern")));
  step.pattern.push_back(std::move(pattern));
  steps_.push_back(std::move(step));
  return {};
}

Status PreTokenizer::add_byte_level(const Json& json) {
  if (flag_or(json, "add_prefix_space", true)) steps_.push_back({.kind = Kind::kPrefixSpace});
  if (flag_or(json, "use_regex", true)) {
    EAGLET_ASSIGN_OR_RETURN(SplitPattern pattern, SplitPattern::regex(kGpt2Pattern));
    steps_.push_back({.kind = Kind::kSplit, .pattern = {std::move(pattern)}});
  }
  byte_level_ = true;
  return {};
}

Status PreTokenizer::add_metaspace(const Json& json) {
  Step step = {.kind = Kind::kMetaspace, .split = flag_or(json, "split", true)};
  EAGLET_ASSIGN_OR_RETURN(step.space, text_member(json, "replacement"));
  if (step.space.empty()) return not_supported("Metaspace without a replacement");
  // Files of before 2024 have a flag instead.
  std::string scheme = flag_or(json, "add_prefix_space", true) ? "always" : "never";
  if (json_field(json, "prepend_scheme") != nullptr) {
    EAGLET_ASSIGN_OR_RETURN(scheme, text_member(json, "prepend_scheme"));
  }
  if (scheme != "always" && scheme != "never" && scheme != "first")
    return not_supported("prepend_scheme " + scheme + " of a Metaspace");
  step.prepend = scheme == "always"  ? Prepend::kAlways
                 : scheme == "first" ? Prepend::kFirst
                                     : Prepend::kNever;
  steps_.push_back(std::move(step));
  return {};
}

Status PreTokenizer::apply(TextPieces* all) const {
  for (const Step& step : steps_) {
    if (step.kind == Kind::kSplit) EAGLET_RETURN_IF_ERROR(split(step, all));
    if (step.kind == Kind::kDigits) split_digits(step.individual, all);
    if (step.kind == Kind::kMetaspace) metaspace(step, all);
    if (step.kind == Kind::kPrefixSpace) prefix_space(all);
    drop_empty(&all->pieces);
  }
  return {};
}

Status PreTokenizer::split(const Step& step, TextPieces* all) {
  const std::string_view seen = all->for_patterns.empty() ? all->text : all->for_patterns;
  std::vector<TextRange> out, matches;
  std::vector<Part> parts;
  for (const TextRange& piece : all->pieces) {
    EAGLET_RETURN_IF_ERROR(
        step.pattern[0].find_all(seen.substr(piece.begin, piece.end - piece.begin), &matches));
    parts.clear();
    std::size_t done = piece.begin;
    for (const TextRange& match : matches) {
      const TextRange found = {piece.begin + match.begin, piece.begin + match.end};
      if (done != found.begin) parts.push_back({{done, found.begin}, step.invert});
      parts.push_back({found, !step.invert});
      done = found.end;
    }
    if (done != piece.end) parts.push_back({{done, piece.end}, step.invert});
    join_parts(std::move(parts), step.delimiter, &out);
    parts = {};
  }
  all->pieces = std::move(out);
  return {};
}

void PreTokenizer::join_parts(std::vector<Part> parts, Delimiter delimiter, std::vector<TextRange>* out) {
  const std::size_t first = out->size();
  if (delimiter == Delimiter::kMergedWithNext) std::reverse(parts.begin(), parts.end());
  bool before = false;  // was the part before a delimiter?
  for (const Part& part : parts) {
    bool joins = false;
    if (delimiter == Delimiter::kContiguous) joins = part.is_delimiter == before;
    if (delimiter == Delimiter::kMergedWithPrevious || delimiter == Delimiter::kMergedWithNext)
      joins = part.is_delimiter && !before;
    before = part.is_delimiter;
    if (delimiter == Delimiter::kRemoved && part.is_delimiter) continue;
    if (!joins || out->size() == first)
      out->push_back(part.range);
    else if (delimiter == Delimiter::kMergedWithNext)
      out->back().begin = part.range.begin;
    else
      out->back().end = part.range.end;
  }
  if (delimiter == Delimiter::kMergedWithNext)
    std::reverse(out->begin() + static_cast<std::ptrdiff_t>(first), out->end());
}

void PreTokenizer::split_digits(bool individual, TextPieces* all) {
  std::vector<TextRange> out;
  for (const TextRange& piece : all->pieces) {
    bool before = false;
    const std::size_t first = out.size();
    for (std::size_t at = piece.begin; at < piece.end;) {
      const Utf8Character one = utf8_at(all->text, at);
      const bool digit = is_numeric(one.point);
      if (out.size() == first || digit != before || (digit && individual)) out.push_back({at, at});
      before = digit;
      at += one.bytes;
      out.back().end = at;
    }
  }
  all->pieces = std::move(out);
}

void PreTokenizer::metaspace(const Step& step, TextPieces* all) {
  Rebuilt rebuilt(all);
  const std::string_view text = all->text;
  for (std::size_t i = 0; i < all->pieces.size(); ++i) {
    const TextRange piece = all->pieces[i];
    const auto is_space = [&](std::size_t at) {
      if (text[at] == ' ') return std::size_t{1};
      return text.substr(at, piece.end - at).starts_with(step.space) ? step.space.size() : std::size_t{0};
    };
    rebuilt.begin_piece();
    const bool first = i == 0 && all->at_start, held = i == 0 && all->continues;
    if (is_space(piece.begin) == 0 && !held &&
        (step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && first)))
      rebuilt.put(step.space);
    for (std::size_t at = piece.begin; at < piece.end;) {
      const std::size_t space = is_space(at);
      if (space > 0 && step.split && at > piece.begin) {
        rebuilt.end_piece();
        rebuilt.begin_piece();
      }
      const std::size_t bytes = space > 0 ? space : utf8_at(text, at).bytes;
      if (space > 0)
        rebuilt.put(step.space);
      else
        rebuilt.copy(at, at + bytes);
      at += bytes;
    }
    rebuilt.end_piece();
  }
  rebuilt.take_over();
}

void PreTokenizer::prefix_space(TextPieces* all) {
  Rebuilt rebuilt(all);
  for (std::size_t i = 0; i < all->pieces.size(); ++i) {
    const TextRange piece = all->pieces[i];
    rebuilt.begin_piece();
    if (all->text[piece.begin] != ' ' && !(i == 0 && all->continues)) rebuilt.put(" ");
    rebuilt.copy(piece.begin, piece.end);
    rebuilt.end_piece();
  }
  rebuilt.take_over();
}

}  // namespace eaglet
