#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/rope_config.h"

namespace eaglet {

/// What a target (verifier) model file says about itself. From a GGUF file (docs/formats/gguf.md).
struct TargetFacts {
  std::string path, architecture, name;
  std::int64_t num_layers = 0, hidden = 0, vocab = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0,
               intermediate = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  RopeConfig rope;
  bool tied_head = false;                 // lm_head is the embedding
  std::int32_t bos_id = -1, eos_id = -1;  // -1: none
  std::vector<std::int32_t> end_ids;      // every id that ends a turn (eos, eot, ...), ascending
  std::vector<std::int32_t> special_ids;  // control tokens, ascending
  /// 16 hex digits over architecture, sizes, tensor table and a sample of the weights: equal for copies of
  /// one file, different for another quantisation or another model. Goes into every store made with it.
  std::string identity;
};

/// kNotFound, kDataLoss ("not a GGUF file", truncated), kConfig (an architecture or rope type we cannot use).
Result<TargetFacts> read_target_facts(const std::string& path);

/// The target's tensors that training shares, dequantised to fp32.
struct TargetWeights {
  std::vector<float> embed_tokens;  // [vocab, hidden]
  std::vector<float> lm_head;       // [vocab, hidden]; empty when tied (use embed_tokens)
  std::vector<float> final_norm;    // [hidden]
  const std::vector<float>& head() const { return lm_head.empty() ? embed_tokens : lm_head; }
};
Result<TargetWeights> read_target_weights(const std::string& path);

}  // namespace eaglet
