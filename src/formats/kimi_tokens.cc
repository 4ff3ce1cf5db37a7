#include "formats/kimi_tokens.h"

#include <fmt/format.h>

#include "formats/json.h"
#include "formats/json_field.h"
#include "formats/tokenizer_config.h"

namespace eaglet {
namespace {

// Some of these folders name two more than are reserved; there they count.
constexpr std::size_t kReserved = 256, kMoreNamed = 2;

/// By the name of the Python code that the folder brings, or of the model.
bool is_kimi(const std::string& folder) {
  if (const auto config = read_json_file(folder + "/tokenizer_config.json"); config.ok())
    if (const Json* code = json_field(*config, "auto_map"))
      for (const char* name : {"tokenization_kimi.", "tokenization_moonshot."})
        if (json_line(*code).find(name) != std::string::npos) return true;
  const auto config = read_json_file(folder + "/config.json");
  const Json* type = config.ok() ? json_field(*config, "model_type") : nullptr;
  return type != nullptr && type->is_string() && type->get<std::string>().starts_with("kimi");
}

}  // namespace

Result<std::vector<std::string>> kimi_special_tokens(const std::string& folder, std::size_t tokens) {
  if (!is_kimi(folder))
    return Status(StatusCode::kConfig, "a tiktoken.model of a family whose pattern is not known", folder,
                  "known: Kimi; bring a tokenizer.json, or use the model's GGUF");
  EAGLET_ASSIGN_OR_RETURN(const TokenizerConfig config, read_tokenizer_config(folder));
  std::vector<std::string> special;
  const auto reserve = [&](std::size_t count) {
    while (special.size() < count)
      special.push_back(fmt::format("<|reserved_token_{}|>", tokens + special.size()));
  };
  reserve(kReserved);
  for (const auto& [id, token] : config.added_tokens) {
    const auto place = static_cast<std::size_t>(id) - tokens;
    if (static_cast<std::size_t>(id) < tokens || place >= kReserved + kMoreNamed)
      return Status(
          StatusCode::kDataLoss,
          fmt::format("special token {} does not lie behind the {} tokens of tiktoken.model", id, tokens),
          folder, "get the tokenizer's files of one model");
    reserve(place + 1);
    special[place] = token.text;
  }
  return special;
}

}  // namespace eaglet
