#include "formats/tokenizer_file.h"

#include <fmt/format.h>

#include <exception>
#include <optional>

#include "base/files.h"
#include "formats/json_field.h"

namespace eaglet {
namespace {

constexpr std::size_t kDeepest = 64;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 28;

/// What nlohmann's parser calls while it reads. Everything goes into one JSON value except model.vocab and
/// model.merges, of which only the elements are kept.
class TokenizerSax {
 public:
  explicit TokenizerSax(TokenizerFile* file) : file_(file) {}
  const std::string& error() const { return error_; }

  bool null() { return value(Json()); }
  bool boolean(bool flag) { return value(Json(flag)); }
  bool number_integer(std::int64_t number) { return value(Json(number)); }
  bool number_unsigned(std::uint64_t number) { return value(Json(number)); }
  bool number_float(double number, const std::string&) { return value(Json(number)); }
  bool binary(Json::binary_t&) { return false; }
  bool string(std::string& text) {
    if (part_ == Part::kMerges) return merge_text(text);
    return value(Json(std::move(text)));
  }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t byte, const std::string&, const std::exception&) {
    return fail(fmt::format("not valid JSON (at byte {})", byte));
  }

 private:
  enum class Part { kRest, kVocab, kMerges, kSkipped };

  bool fail(const std::string& what) {
    if (error_.empty()) error_ = what;
    return false;
  }

  bool value(Json json) {
    if (part_ == Part::kVocab) return token(json);
    if (part_ == Part::kMerges) return fail("model.merges holds something that is no text");
    if (part_ == Part::kRest) place(std::move(json));
    return true;
  }

  Json* place(Json json) {
    if (stack_.empty()) {
      file_->rest = std::move(json);
      return &file_->rest;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(json));
      return &parent.back();
    }
    return &(parent[key_] = std::move(json));
  }

  bool open(Json empty) {
    if (stack_.size() + depth_ >= kDeepest)
      return fail(fmt::format("nested deeper than {} levels", kDeepest));
    if (part_ == Part::kVocab) return fail("model.vocab holds something that is no id");
    if (part_ == Part::kMerges && (depth_ == 2 || empty.is_object()))
      return fail("model.merges holds something that is no text");
    if (part_ != Part::kRest) {
      ++depth_;
      return true;
    }
    const bool in_model = stack_.size() == 2 && model_;
    if (in_model && key_ == "vocab") {
      part_ = empty.is_object() ? Part::kVocab : Part::kSkipped;
      file_->vocab.clear();
    } else if (in_model && key_ == "merges" && empty.is_array()) {
      part_ = Part::kMerges;
      file_->merges.clear();
    }
    if (part_ != Part::kRest) {
      depth_ = 1;
      return true;
    }
    if (stack_.size() == 1) model_ = key_ == "model" && empty.is_object();
    stack_.push_back(place(std::move(empty)));
    return true;
  }

  bool close() {
    if (part_ == Part::kRest) {
      stack_.pop_back();
      return true;
    }
    if (part_ == Part::kMerges && depth_ == 2 && !pair_.empty())
      return fail(fmt::format("merge {} is not a pair", file_->merges.size() + 1));
    if (--depth_ == 0) part_ = Part::kRest;
    return true;
  }

  bool token(const Json& id) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMostTokens))
      return fail("model.vocab holds something that is no id");
    file_->vocab.emplace_back(std::move(key_), static_cast<std::int32_t>(id.get<std::uint64_t>()));
    return true;
  }

  /// "left right", or one half of ["left", "right"].
  bool merge_text(std::string& text) {
    if (depth_ == 2) {
      pair_.push_back(std::move(text));
      if (pair_.size() < 2) return true;
      file_->merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      pair_.clear();
      return true;
    }
    if (text.starts_with("#version")) return true;
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      return fail(
          fmt::format("merge {} is not two texts with one space between them", file_->merges.size() + 1));
    file_->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }

  TokenizerFile* file_;
  std::vector<Json*> stack_;  // the open values; a parent does not grow while a child of it is open
  std::string key_, error_;
  std::vector<std::string> pair_;
  Part part_ = Part::kRest;
  std::size_t depth_ = 0;  // inside model.vocab or model.merges
  bool model_ = false;     // the open member of the root is "model"
};

Status no_tokenizer(const std::string& what) {
  return Status(StatusCode::kDataLoss, "not a usable tokenizer.json: " + what, {},
                "get the tokenizer's files again");
}

bool flag(const Json& object, const char* name) {
  const Json* value = json_field(object, name);
  return value != nullptr && *value == Json(true);
}

Status read_added(const Json& rest, std::vector<AddedToken>* added) {
  const Json* list = json_field(rest, "added_tokens");
  if (list == nullptr) return {};
  if (!list->is_array()) return no_tokenizer("added_tokens is not a list");
  for (const Json& entry : *list) {
    const Json* id = json_field(entry, "id");
    const Json* text = json_field(entry, "content");
    if (id == nullptr || !id->is_number_unsigned() ||
        id->get<std::uint64_t>() >= static_cast<std::uint64_t>(kMostTokens) || text == nullptr ||
        !text->is_string())
      return no_tokenizer(fmt::format("added token {} has no id or no content", added->size() + 1));
    added->push_back({text->get<std::string>(), id->get<std::int32_t>(), flag(entry, "single_word"),
                      flag(entry, "lstrip"), flag(entry, "rstrip"), flag(entry, "normalized"),
                      flag(entry, "special")});
  }
  return {};
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t digit = alphabet.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xff);
  }
  return bytes;
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view text) {
  TokenizerFile file;
  TokenizerSax sax(&file);
  try {
    if (!Json::sax_parse(text.begin(), text.end(), &sax)) return no_tokenizer(sax.error());
  } catch (const std::exception& error) {
    return no_tokenizer(error.what());
  }
  if (json_field(file.rest, "model") == nullptr) return no_tokenizer("it has no model");
  EAGLET_RETURN_IF_ERROR(read_added(file.rest, &file.added));
  return file;
}

Result<TokenizerFile> read_tokenizer_file(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  auto file = parse_tokenizer_file(text);
  if (!file.ok()) return file.status().at(path);
  return file;
}

Result<std::vector<std::string>> parse_tiktoken_file(std::string_view text) {
  std::vector<std::string> tokens;
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    auto bytes = from_base64(line.substr(0, space));
    // Every file lists its tokens by rank; another order would be another file.
    if (space == std::string_view::npos || !bytes || bytes->empty() ||
        line.substr(space + 1) != std::to_string(tokens.size()))
      return Status(StatusCode::kDataLoss,
                    fmt::format("line {} is not a token in base64 and its rank {}", number, tokens.size()),
                    {}, "get the tokenizer's files again");
    tokens.push_back(std::move(*bytes));
  }
  if (tokens.empty()) return Status(StatusCode::kDataLoss, "the tiktoken file holds no token");
  return tokens;
}

Result<std::vector<std::string>> read_tiktoken_file(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  auto tokens = parse_tiktoken_file(text);
  if (!tokens.ok()) return tokens.status().at(path);
  return tokens;
}

}  // namespace eaglet
