#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "draft/resident_draft.h"
#include "formats/json.h"
#include "formats/target_model.h"
#include "generate/generate.h"
#include "generate/native_generator.h"
#include "target/resident_target.h"
#include "verifier/generator.h"
#include "verifier/target.h"

namespace eaglet {

/// What runs the target when no server is asked: our own forward with all weights in memory (native), or
/// libllama. Tokenizer and chat template are the model's own, or another file's (--tokenizer).
class EmbeddedEngine {
 public:
  /// kUsage (an engine or type that does not exist, flags of the other engine), kNoSpace (the weights do not
  /// fit), kConfig (a tokenizer or a draft of another model), the errors of
  /// loading. Says in a note which engine it is and why.
  static Result<EmbeddedEngine> open(const GenerateOptions& options, Progress& progress);

  const TargetTokens& tokenizer() const { return *tokenizer_; }
  const TargetFacts& facts() const { return facts_; }  // of the target
  bool native() const { return resident_ != nullptr; }
  /// What makes the answers, for their record: engine, and what the weights are held as.
  Json settings() const;
  /// For requests of at most `longest_sequence` tokens. kNoSpace when the cache does not fit.
  Result<std::unique_ptr<Generator>> make_generator(std::size_t requests, std::int64_t longest_sequence,
                                                    const std::vector<std::int32_t>& kept_layers) const;
  /// Native, with a draft: drafts of that length, 0: none.
  std::unique_ptr<Generator> make_drafting_generator(std::size_t requests, std::int64_t draft_length) const;
  /// Native: the target's logits after `tokens` [vocab], the first `together` of them in one pass, the rest
  /// one by one.
  Result<std::vector<float>> logits_after(const std::vector<std::int32_t>& tokens,
                                          std::size_t together) const;
  int parallel() const;  // sequences decoded together at most

 private:
  explicit EmbeddedEngine(const GenerateOptions& options) : options_(options) {}
  Status load_native(Progress& progress);
  NativeGeneratorOptions native_options(std::size_t requests) const;
  Status load_draft(DraftWeights weights, std::uint64_t* left, Progress& progress);
  Status load_llama(Progress& progress, const std::string& why);

  GenerateOptions options_;
  TargetFacts facts_;
  std::unique_ptr<Target> llama_;             // with libllama
  std::unique_ptr<TargetTokens> own_tokens_;  // without
  const TargetTokens* tokenizer_ = nullptr;   // one of these
  std::unique_ptr<ResidentTarget> resident_;
  std::unique_ptr<ResidentDraft> draft_;  // with --draft
  std::uint64_t cache_bytes_ = 0;
};

}  // namespace eaglet
