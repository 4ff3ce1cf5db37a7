#include "verifier/folder_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/tokenizer_config.h"
#include "formats/transformers_target.h"
#include "tokenizer/tokenizer.h"

namespace eaglet {
namespace {

constexpr const char* kOneModel = "give tokenizer and config of one model";
// Embeddings are padded to a multiple of some power of two, and a few tokens are kept back: about a thousand
// rows at most in published models (Phi-2 905, Llama 4 913). More of both is another model's tokenizer, whose
// ids would pass every other test.
constexpr std::int64_t kMostPadding = 2048;

Status disagrees(const std::string& what, const std::string& folder) {
  return Status(StatusCode::kConfig, "the tokenizer does not belong to this model: " + what, folder,
                kOneModel);
}

/// Ids mean rows of the embeddings, and texts that templates write must be tokens.
Status check_vocabulary(const Tokenizer& tokenizer, const TokenizerConfig& config, const TargetFacts& facts,
                        const std::string& folder) {
  if (tokenizer.size() > facts.vocab)
    return disagrees(fmt::format("it has {} tokens, the embeddings {}", tokenizer.size(), facts.vocab),
                     folder);
  const std::int64_t padding = facts.vocab - tokenizer.size();
  if (padding > kMostPadding && padding > facts.vocab / 10)
    return disagrees(fmt::format("it has {} tokens, the embeddings {} rows, {} more than padding explains",
                                 tokenizer.size(), facts.vocab, padding),
                     folder);
  std::vector<std::pair<const char*, std::int32_t>> named = {{"bos_token_id", facts.bos_id}};
  for (const std::int32_t id : facts.end_ids) named.emplace_back("eos_token_id", id);
  for (const auto& [name, id] : named)
    if (id >= 0 && tokenizer.piece(id).empty())
      return disagrees(fmt::format("{} {} is none of its {} tokens", name, id, tokenizer.size()), folder);
  for (const auto& [name, text] :
       {std::pair("bos_token", &config.bos_token), std::pair("eos_token", &config.eos_token)})
    if (!text->empty() && tokenizer.id_of(*text) < 0)
      return disagrees(fmt::format("{} \"{}\" is none of its tokens", name, *text), folder);
  for (const auto& [id, token] : config.added_tokens)
    if (tokenizer.id_of(token.text) != id)
      return disagrees(fmt::format("tokenizer_config.json has \"{}\" as {}, the tokenizer as {}", token.text,
                                   id, tokenizer.id_of(token.text)),
                       folder);
  return {};
}

class FolderTokens final : public TargetTokens {
 public:
  FolderTokens(TargetFacts facts, TokenizerConfig config, std::unique_ptr<Tokenizer> tokenizer)
      : facts_(std::move(facts)), config_(std::move(config)), tokenizer_(std::move(tokenizer)) {}

  const TargetFacts& facts() const override { return facts_; }
  Result<std::vector<std::int32_t>> prompt_ids(const std::string& text) const override {
    return tokenizer_->encode(text, TextPlace::kStart);
  }
  Result<std::vector<std::int32_t>> answer_ids(const std::string& text) const override {
    return tokenizer_->encode(text, TextPlace::kContinues);
  }
  Result<std::vector<std::int32_t>> plain_ids(const std::string& text) const override {
    return tokenizer_->encode(text, TextPlace::kStart);
  }
  SpecialFrame frame() const override { return tokenizer_->frame(); }
  std::string piece(std::int32_t token, bool special) const override {
    return tokenizer_->is_special(token) && !special ? std::string() : tokenizer_->piece(token);
  }
  bool ends(std::int32_t token) const override {
    return std::binary_search(facts_.end_ids.begin(), facts_.end_ids.end(), token);
  }
  bool adds_bos() const override { return false; }
  std::string bos_text() const override { return config_.bos_token; }
  std::string eos_text() const override { return config_.eos_token; }
  std::string chat_template(bool for_tools) const override {
    return for_tools && !config_.tool_template.empty() ? config_.tool_template : config_.chat_template;
  }

 private:
  TargetFacts facts_;
  TokenizerConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace

Result<std::unique_ptr<TargetTokens>> open_folder_tokens(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(TargetFacts facts, read_target_facts(path));
  const std::string folder = transformers_folder(path);
  EAGLET_ASSIGN_OR_RETURN(TokenizerConfig config, read_tokenizer_config(folder));
  EAGLET_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::load(folder));
  EAGLET_RETURN_IF_ERROR(check_vocabulary(*tokenizer, config, facts, folder));
  return std::unique_ptr<TargetTokens>(
      std::make_unique<FolderTokens>(std::move(facts), std::move(config), std::move(tokenizer)));
}

}  // namespace eaglet
