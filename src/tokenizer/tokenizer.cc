#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files.h"
#include "formats/json_field.h"
#include "formats/kimi_tokens.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

// Far above any vocabulary: an id beyond it would only make us take memory.
constexpr std::int32_t kLargestId = 1 << 22;

// How Kimi K2 and its like cut texts. Their folders have it as Python code only: pat_str in
// tokenization_kimi.py.
constexpr const char* kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const Json& member_or_null(const Json& json, const char* name) {
  static const Json null;
  const Json* value = json_field(json, name);
  return value != nullptr ? *value : null;
}

/// The ids that the reference gives added tokens: their place in the vocabulary, else the next free one in
/// order. A file that says otherwise would mean other ids there.
Status check_added_ids(const TokenizerFile& file,
                       const std::unordered_map<std::string, std::int32_t>& vocab) {
  const auto vocab_size = static_cast<std::int32_t>(vocab.size());
  std::unordered_map<std::string, std::int32_t> given;
  std::int32_t largest = -1;
  for (const AddedToken& token : file.added) {
    if (token.text.empty()) continue;
    std::int32_t id = -1;
    if (const auto before = given.find(token.text); before != given.end()) {
      id = before->second;
    } else if (const auto own = vocab.find(token.text); own != vocab.end()) {
      id = own->second;
    } else {
      id = largest >= vocab_size ? largest + 1 : vocab_size;
    }
    if (id != token.id)
      return Status(StatusCode::kDataLoss,
                    fmt::format("added token \"{}\" says id {}, by its place it would get {}", token.text,
                                token.id, id),
                    {}, "get the tokenizer's files again");
    given[token.text] = id;
    largest = std::max(largest, id);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& folder) {
  const std::string json = folder + "/tokenizer.json", ranks = folder + "/tiktoken.model";
  if (path_exists(json)) {
    EAGLET_ASSIGN_OR_RETURN(const TokenizerFile file, read_tokenizer_file(json));
    auto tokenizer = from_file(file);
    if (!tokenizer.ok()) return tokenizer.status().at(json);
    return tokenizer;
  }
  if (path_exists(ranks)) {
    EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> tokens, read_tiktoken_file(ranks));
    EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> special,
                            kimi_special_tokens(folder, tokens.size()));
    auto tokenizer = from_ranks(tokens, kKimiPattern, special);
    if (!tokenizer.ok()) return tokenizer.status().at(ranks);
    return tokenizer;
  }
  return Status(StatusCode::kNotFound, "the folder has no tokenizer.json", folder,
                "copy it there from the model's origin, or give --tokenizer FILE: a GGUF of the same model");
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_file(const TokenizerFile& file) {
  EAGLET_ASSIGN_OR_RETURN(PreTokenizer pre,
                          PreTokenizer::from_json(member_or_null(file.rest, "pre_tokenizer")));
  EAGLET_ASSIGN_OR_RETURN(BpeModel model, BpeModel::from_file(file, pre.byte_level()));
  std::unique_ptr<Tokenizer> made(new Tokenizer(std::move(model)));
  made->pre_tokenizer_ = std::move(pre);
  EAGLET_ASSIGN_OR_RETURN(made->normalizer_,
                          TextNormalizer::from_json(member_or_null(file.rest, "normalizer")));
  EAGLET_ASSIGN_OR_RETURN(made->frame_, SpecialFrame::from_json(member_or_null(file.rest, "post_processor")));
  EAGLET_ASSIGN_OR_RETURN(const PieceText pieces, PieceText::from_json(member_or_null(file.rest, "decoder")));
  made->ids_.reserve(file.vocab.size());
  for (const auto& [text, id] : file.vocab) {
    if (id >= kLargestId)
      return Status(StatusCode::kDataLoss,
                    fmt::format("the id {} of \"{}\" is beyond any vocabulary", id, text));
    made->ids_.insert_or_assign(text, id);
    made->set_token(id, pieces.bytes_of(text), false);
  }
  EAGLET_RETURN_IF_ERROR(check_added_ids(file, made->ids_));
  EAGLET_RETURN_IF_ERROR(made->add_tokens(file.added));
  return made;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_ranks(const std::vector<std::string>& tokens,
                                                         const std::string& pattern,
                                                         const std::vector<std::string>& special) {
  EAGLET_ASSIGN_OR_RETURN(BpeModel model, BpeModel::from_ranks(tokens));
  std::unique_ptr<Tokenizer> made(new Tokenizer(std::move(model)));
  EAGLET_ASSIGN_OR_RETURN(made->pre_tokenizer_, PreTokenizer::by_regex(pattern));
  for (std::size_t id = 0; id < tokens.size(); ++id)
    made->set_token(static_cast<std::int32_t>(id), tokens[id], false);
  std::vector<AddedToken> added;
  for (const std::string& text : special)
    added.push_back(
        {.text = text, .id = static_cast<std::int32_t>(tokens.size() + added.size()), .special = true});
  EAGLET_RETURN_IF_ERROR(made->add_tokens(added));
  return made;
}

void Tokenizer::set_token(std::int32_t id, std::string bytes, bool special) {
  const auto place = static_cast<std::size_t>(id);
  if (place >= texts_.size()) texts_.resize(place + 1);
  texts_[place] = {std::move(bytes), special};
}

Status Tokenizer::add_tokens(const std::vector<AddedToken>& added) {
  // The reference looks for the special ones first: of two with one spelling these count.
  for (const bool special : {true, false})
    for (const AddedToken& token : added) {
      if (token.text.empty() || token.special != special) continue;
      ids_.insert_or_assign(token.text, token.id);
      set_token(token.id, token.text, token.special);
      if (!token.normalized) {
        added_.add(token, token.text);
        continue;
      }
      EAGLET_ASSIGN_OR_RETURN(const std::string spelling, normalizer_.apply(token.text, false));
      added_normalized_.add(token, spelling);
    }
  return {};
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, TextPlace place) const {
  std::vector<std::int32_t> ids;
  std::string mended;
  if (!is_utf8(text, &mended)) text = mended;
  const bool continues = place == TextPlace::kContinues;
  for (const TextPart& part : added_.split(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    const bool first = part.range.begin == 0;
    EAGLET_RETURN_IF_ERROR(
        encode_part(std::string(text.substr(part.range.begin, part.range.end - part.range.begin)),
                    first && !continues, first && continues, &ids));
  }
  return ids;
}

Status Tokenizer::encode_part(std::string part, bool at_start, bool continues,
                              std::vector<std::int32_t>* ids) const {
  EAGLET_ASSIGN_OR_RETURN(std::string text, normalizer_.apply(std::move(part), continues));
  if (added_normalized_.empty()) return encode_pieces(std::move(text), at_start, continues, ids);
  for (const TextPart& inner : added_normalized_.split(text)) {
    if (inner.id >= 0) {
      ids->push_back(inner.id);
      continue;
    }
    const bool first = inner.range.begin == 0;
    EAGLET_RETURN_IF_ERROR(encode_pieces(text.substr(inner.range.begin, inner.range.end - inner.range.begin),
                                         first && at_start, first && continues, ids));
  }
  return {};
}

Status Tokenizer::encode_pieces(std::string text, bool at_start, bool continues,
                                std::vector<std::int32_t>* ids) const {
  if (text.empty()) return {};
  TextPieces all;
  all.for_patterns = text_for_patterns(text);
  all.pieces.push_back({0, text.size()});
  all.text = std::move(text);
  all.at_start = at_start;
  all.continues = continues;
  EAGLET_RETURN_IF_ERROR(pre_tokenizer_.apply(&all));
  for (const TextRange& piece : all.pieces)
    model_.encode(std::string_view(all.text).substr(piece.begin, piece.end - piece.begin), ids);
  return {};
}

const std::string& Tokenizer::piece(std::int32_t id) const {
  static const std::string none;
  return id >= 0 && id < size() ? texts_[static_cast<std::size_t>(id)].bytes : none;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < size() && texts_[static_cast<std::size_t>(id)].special;
}

std::int32_t Tokenizer::id_of(const std::string& text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

}  // namespace eaglet
