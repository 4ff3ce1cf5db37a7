#include "formats/tokenizer_hash.h"

#include <fmt/format.h>

#include "base/files.h"
#include "base/hash.h"
#include "formats/byte_alphabet.h"
#include "formats/gguf_file.h"
#include "formats/kimi_tokens.h"
#include "formats/target_model.h"
#include "formats/tokenizer_file.h"
#include "formats/transformers_target.h"

namespace eaglet {
namespace {

std::string hash_of_tokens(const std::vector<std::string>& tokens) {
  std::uint64_t hash = tokens.size();
  for (const std::string& token : tokens) hash = xxh64(token.data(), token.size(), hash);
  return hex64(hash);
}

using TextsById = std::vector<std::pair<std::int32_t, std::string>>;

Result<TextsById> texts_of_ranks(const std::string& folder) {
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> tokens,
                          read_tiktoken_file(folder + "/tiktoken.model"));
  EAGLET_ASSIGN_OR_RETURN(const std::vector<std::string> special, kimi_special_tokens(folder, tokens.size()));
  TextsById texts;
  for (const std::string& token : tokens) {
    std::string text;
    for (const char byte : token) text += byte_character(static_cast<std::uint8_t>(byte));
    texts.emplace_back(static_cast<std::int32_t>(texts.size()), std::move(text));
  }
  for (const std::string& text : special) texts.emplace_back(static_cast<std::int32_t>(texts.size()), text);
  return texts;
}

Result<TextsById> texts_of_file(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const TokenizerFile file, read_tokenizer_file(path));
  TextsById texts;
  for (const auto& [text, id] : file.vocab) texts.emplace_back(id, text);
  for (const AddedToken& token : file.added) texts.emplace_back(token.id, token.text);
  return texts;
}

/// One text for each row of the embeddings; rows without a token get the text that llama.cpp's converter
/// gives them, so that a folder and its GGUF have one hash.
Result<std::string> hash_of_texts(const TextsById& texts, const std::string& target) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(target));
  std::vector<std::string> tokens(static_cast<std::size_t>(facts.vocab));
  for (std::size_t id = 0; id < tokens.size(); ++id) tokens[id] = fmt::format("[PAD{}]", id);
  for (const auto& [id, text] : texts) {
    if (id < 0 || id >= facts.vocab)
      return Status(
          StatusCode::kConfig,
          fmt::format(
              "the tokenizer does not belong to this model: it has a token {}, the embeddings {} rows", id,
              facts.vocab),
          target, "give tokenizer and config of one model");
    tokens[static_cast<std::size_t>(id)] = text;
  }
  return hash_of_tokens(tokens);
}

}  // namespace

Result<std::string> tokenizer_hash(const std::string& target) {
  if (is_transformers_target(target)) {
    const std::string folder = transformers_folder(target);
    if (path_exists(folder + "/tokenizer.json")) {
      EAGLET_ASSIGN_OR_RETURN(const TextsById texts, texts_of_file(folder + "/tokenizer.json"));
      return hash_of_texts(texts, target);
    }
    if (path_exists(folder + "/tiktoken.model")) {
      EAGLET_ASSIGN_OR_RETURN(const TextsById texts, texts_of_ranks(folder));
      return hash_of_texts(texts, target);
    }
    for (const char* name : {"/tokenizer.model", "/vocab.json"}) {
      if (!path_exists(folder + name)) continue;
      EAGLET_ASSIGN_OR_RETURN(const std::string content, read_file(folder + name));
      return hex64(xxh64(content));
    }
    return std::string();
  }
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(target));
  const auto tokens = file.strings("tokenizer.ggml.tokens");
  return tokens ? hash_of_tokens(*tokens) : std::string();
}

}  // namespace eaglet
