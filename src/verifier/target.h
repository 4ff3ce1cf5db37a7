#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "verifier/target_tokens.h"

struct llama_vocab;

namespace eaglet {

/// The arithmetic a quantised file is run in. Dequantised 16-bit weights stand for the same numbers, without
/// the rounding of activations to 8 bits that packed products make, and are faster in batches: SmolLM2-135M
/// Q4_1 on one core of an AMD EPYC with avx512_bf16, 29 November 2026, tokens per second of CPU time, stored
/// / f16 / f32: states 165 / 323 / 284, generating 16 sequences 99 / 129 / 88.
enum class TargetWeightsAs {
  kAuto,    // kF16 when the file is quantised, there is no accelerator, and the memory is there; else kStored
  kStored,  // as the file has them
  kF16,
  kF32  // dequantised into memory
};
/// "auto", "stored", "f16", "f32"; kUsage for anything else.
Result<TargetWeightsAs> weights_as_from_name(const std::string& name);

struct TargetOptions {
  TargetWeightsAs weights = TargetWeightsAs::kAuto;
  int threads = 0;          // 0 = all cores
  bool vocab_only = false;  // only the tokenizer and the chat template: nothing can be run
};

/// A target model loaded into libllama: tokens in and out. Generating and taking states are next door
/// (generator.h, state_taker.h) and share the weights of one Target. Not thread-safe.
class Target final : public TargetTokens {
 public:
  /// The errors of read_target_facts; kNoSpace; kConfig when libllama cannot run the model (its own words).
  static Result<std::unique_ptr<Target>> load(const std::string& path, const TargetOptions& options = {});
  ~Target() override;

  const TargetFacts& facts() const override { return facts_; }
  llama_model* model() const override { return model_; }
  int threads() const { return threads_; }
  /// "f16" when the weights were widened, "as stored" when not: for the run's records.
  const std::string& weights_as() const { return weights_as_; }

  /// Token ids of text; special tokens written out in it ("<|im_end|>") become their ids.
  Result<std::vector<std::int32_t>> tokenize(const std::string& text, bool add_bos) const;
  Result<std::vector<std::int32_t>> prompt_ids(const std::string& text) const override;
  Result<std::vector<std::int32_t>> answer_ids(const std::string& text) const override;
  Result<std::vector<std::int32_t>> plain_ids(const std::string& text) const override;
  SpecialFrame frame() const override;
  std::string piece(std::int32_t token, bool special) const override;
  bool ends(std::int32_t token) const override;
  bool adds_bos() const override;
  std::string bos_text() const override;
  std::string eos_text() const override;
  std::string chat_template(bool for_tools) const override;

 private:
  Target() = default;
  TargetFacts facts_;
  llama_model* model_ = nullptr;
  const llama_vocab* vocab_ = nullptr;
  int threads_ = 1;
  std::string weights_as_;
};

}  // namespace eaglet
