#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "formats/json_field.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace eaglet {
namespace {

// A compatibility form makes at most 11 bytes of one. Replacements of a damaged file could make any number.
constexpr std::size_t kMostGrowth = 64, kMostFree = 4096;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

Result<std::string> normal_form(std::string_view text, int form) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &out,
                                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
  const std::unique_ptr<utf8proc_uint8_t, FreeMemory> owner(out);
  if (bytes < 0)
    return Status(StatusCode::kInvalidArgument,
                  std::string("cannot normalise the text: ") + utf8proc_errmsg(bytes));
  return std::string(reinterpret_cast<const char*>(out), static_cast<std::size_t>(bytes));
}

/// A character that the reference's Unicode has no data for ends what can be composed or reordered.
Result<std::string> normal_form_of_reference(const std::string& text, int form) {
  std::string out;
  std::size_t begin = 0;
  const auto close = [&](std::size_t end) -> Status {
    if (begin == end) return {};
    EAGLET_ASSIGN_OR_RETURN(const std::string part,
                            normal_form(std::string_view(text).substr(begin, end - begin), form));
    out += part;
    return {};
  };
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character one = utf8_at(text, at);
    if (one.point >= 0x300 && is_plain_in_normalisation(one.point)) {
      EAGLET_RETURN_IF_ERROR(close(at));
      out.append(text, at, one.bytes);
      begin = at + one.bytes;
    }
    at += one.bytes;
  }
  EAGLET_RETURN_IF_ERROR(close(text.size()));
  return out;
}

Result<std::string> replaced(const std::string& text, const SplitPattern& pattern, const std::string& by) {
  std::vector<TextRange> matches;
  const std::string seen = text_for_patterns(text);
  EAGLET_RETURN_IF_ERROR(pattern.find_all(seen.empty() ? text : seen, &matches));
  if (matches.empty()) return text;
  std::string out;
  std::size_t done = 0;
  for (const TextRange& match : matches) {
    out.append(text, done, match.begin - done);
    out += by;
    done = match.end;
  }
  out.append(text, done);
  return out;
}

bool is_ascii(const std::string& text) {
  for (const char c : text)
    if (static_cast<signed char>(c) < 0) return false;
  return true;
}

}  // namespace

std::string type_of(const Json& json) {
  const Json* type = json_field(json, "type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : "?";
}

Result<std::string> text_member(const Json& json, const char* name) {
  const Json* value = json_field(json, name);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  return Status(StatusCode::kDataLoss, "not a usable tokenizer.json: " + type_of(json) + " has no " + name);
}

Result<SplitPattern> pattern_from_json(const Json* json) {
  if (json != nullptr) {
    if (const Json* regex = json_field(*json, "Regex"); regex != nullptr && regex->is_string())
      return SplitPattern::regex(regex->get<std::string>());
    if (const Json* text = json_field(*json, "String"); text != nullptr && text->is_string())
      return SplitPattern::plain(text->get<std::string>());
  }
  return Status(StatusCode::kDataLoss, "not a usable tokenizer.json: a pattern is neither String nor Regex");
}

Result<TextNormalizer> TextNormalizer::from_json(const Json& json) {
  TextNormalizer normalizer;
  if (!json.is_null()) EAGLET_RETURN_IF_ERROR(normalizer.add(json));
  return normalizer;
}

Status TextNormalizer::add(const Json& json) {
  const std::string type = type_of(json);
  if (type == "Sequence") {
    const Json* list = json_field(json, "normalizers");
    if (list == nullptr || !list->is_array())
      return Status(StatusCode::kDataLoss, "not a usable tokenizer.json: a Sequence has no normalizers");
    for (const Json& one : *list) EAGLET_RETURN_IF_ERROR(add(one));
    return {};
  }
  for (const auto& [name, kind] :
       {std::pair("NFC", Kind::kNfc), {"NFD", Kind::kNfd}, {"NFKC", Kind::kNfkc}, {"NFKD", Kind::kNfkd}})
    if (type == name) {
      steps_.push_back({kind, {}, {}});
      return {};
    }
  if (type == "Prepend") {
    EAGLET_ASSIGN_OR_RETURN(std::string text, text_member(json, "prepend"));
    steps_.push_back({Kind::kPrepend, std::move(text), {}});
    return {};
  }
  if (type == "Replace") {
    EAGLET_ASSIGN_OR_RETURN(std::string text, text_member(json, "content"));
    EAGLET_ASSIGN_OR_RETURN(SplitPattern pattern, pattern_from_json(json_field(json, "pattern")));
    steps_.push_back({Kind::kReplace, std::move(text), {std::move(pattern)}});
    return {};
  }
  return Status(StatusCode::kConfig, "the tokenizer's normalizer " + type + " is not supported", {},
                "known: NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence; or use the model's GGUF");
}

Result<std::string> TextNormalizer::apply(std::string text, bool continues) const {
  const std::size_t most_bytes = kMostGrowth * text.size() + kMostFree;
  for (const Step& step : steps_) {
    if (text.size() > most_bytes)
      return Status(StatusCode::kInvalidArgument,
                    "the tokenizer's normalizer makes a text many times as long");
    if (step.kind == Kind::kPrepend) {
      if (!text.empty() && !continues) text.insert(0, step.text);
      continue;
    }
    if (step.kind == Kind::kReplace) {
      EAGLET_ASSIGN_OR_RETURN(text, replaced(text, step.pattern[0], step.text));
      continue;
    }
    if (is_ascii(text)) continue;
    int form = step.kind == Kind::kNfc || step.kind == Kind::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (step.kind == Kind::kNfkc || step.kind == Kind::kNfkd) form |= UTF8PROC_COMPAT;
    EAGLET_ASSIGN_OR_RETURN(text, normal_form_of_reference(text, form));
  }
  return text;
}

}  // namespace eaglet
