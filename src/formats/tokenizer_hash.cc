#include "formats/tokenizer_hash.h"

#include "base/files.h"
#include "base/hash.h"
#include "formats/gguf_file.h"
#include "formats/transformers_target.h"

namespace eaglet {

Result<std::string> tokenizer_hash(const std::string& target) {
  if (is_transformers_target(target)) {
    if (!is_directory(target)) return std::string();
    for (const char* name : {"/tokenizer.json", "/tokenizer.model", "/tiktoken.model", "/vocab.json"}) {
      if (!path_exists(target + name)) continue;
      EAGLET_ASSIGN_OR_RETURN(const std::string content, read_file(target + name));
      return hex64(xxh64(content));
    }
    return std::string();
  }
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(target));
  const auto tokens = file.strings("tokenizer.ggml.tokens");
  if (!tokens) return std::string();
  std::uint64_t hash = tokens->size();
  for (const std::string& token : *tokens) hash = xxh64(token.data(), token.size(), hash);
  return hex64(hash);
}

}  // namespace eaglet
