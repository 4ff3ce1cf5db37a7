#include "tokenizer/piece_text.h"

#include <cstdlib>

#include "formats/byte_alphabet.h"
#include "formats/json_field.h"
#include "tokenizer/normalizer.h"

namespace eaglet {
namespace {

/// The byte of "<0x0A>" and its like.
std::optional<char> byte_of_token(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  if (token.substr(3, 2).find_first_not_of("0123456789ABCDEFabcdef") != std::string::npos)
    return std::nullopt;
  return static_cast<char>(std::strtol(token.substr(3, 2).c_str(), nullptr, 16));
}

std::string with_all_replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

PieceText PieceText::byte_level() {
  PieceText made;
  made.steps_.push_back({Kind::kByteLevel});
  return made;
}

Result<PieceText> PieceText::from_json(const Json& json) {
  PieceText made;
  if (!json.is_null()) EAGLET_RETURN_IF_ERROR(made.add(json));
  return made;
}

Status PieceText::add(const Json& json) {
  const std::string type = type_of(json);
  if (type == "Sequence") {
    const Json* list = json_field(json, "decoders");
    if (list == nullptr || !list->is_array())
      return Status(StatusCode::kDataLoss, "not a usable tokenizer.json: a Sequence has no decoders");
    for (const Json& one : *list) EAGLET_RETURN_IF_ERROR(add(one));
    return {};
  }
  if (type == "ByteLevel") {
    steps_.push_back({Kind::kByteLevel});
  } else if (type == "ByteFallback") {
    steps_.push_back({Kind::kByteFallback});
  } else if (type == "Metaspace") {
    EAGLET_ASSIGN_OR_RETURN(std::string space, text_member(json, "replacement"));
    steps_.push_back({Kind::kReplace, std::move(space), " "});
  } else if (type == "Replace") {
    const Json* pattern = json_field(json, "pattern");
    const Json* from = pattern != nullptr ? json_field(*pattern, "String") : nullptr;
    if (from == nullptr || !from->is_string() || from->get<std::string>().empty())
      return Status(StatusCode::kConfig,
                    "the tokenizer's decoder Replace by a regular expression is not supported");
    EAGLET_ASSIGN_OR_RETURN(std::string to, text_member(json, "content"));
    steps_.push_back({Kind::kReplace, from->get<std::string>(), std::move(to)});
  } else if (type != "Fuse" && type != "Strip") {
    return Status(
        StatusCode::kConfig, "the tokenizer's decoder " + type + " is not supported", {},
        "known: ByteLevel, ByteFallback, Metaspace, Replace, Fuse, Strip, Sequence; or use the model's GGUF");
  }
  return {};
}

std::string PieceText::bytes_of(const std::string& token) const {
  std::string text = token;
  for (const Step& step : steps_) {
    if (step.kind == Kind::kReplace) {
      text = with_all_replaced(std::move(text), step.from, step.to);
    } else if (step.kind == Kind::kByteLevel) {
      if (auto bytes = bytes_of_characters(text)) text = std::move(*bytes);
    } else if (const auto byte = byte_of_token(text)) {
      return std::string(1, *byte);
    }
  }
  return text;
}

}  // namespace eaglet
