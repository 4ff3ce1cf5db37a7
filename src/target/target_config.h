#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "formats/rope_config.h"
#include "target/weight_quantisation.h"

namespace eaglet {

/// Latent attention (DeepSeek-V3, Kimi-K2): keys and values come from one narrow row a token.
struct LatentConfig {
  std::int64_t q_rank = 0;                                 // 0: queries are not compressed
  std::int64_t kv_rank = 0;                                // 0: no latent attention
  std::int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;  // of a head
  bool rope_interleaved = true;                            // pairs are neighbours in the weights
};

/// Experts of a layer and how a token's are chosen.
struct ExpertConfig {
  std::int64_t count = 0;  // 0: no layer has experts
  std::int64_t per_token = 0, width = 0, shared = 0;
  bool sigmoid = false;     // scores; else softmax over all experts
  bool correction = false;  // a bias that only decides which are chosen
  std::int64_t groups = 1, groups_kept = 1;
  bool normalised = false;  // the chosen weights add up to 1 before `scale`
  double scale = 1;
  std::vector<bool> on_layer;  // which layers have experts
};

/// What the native forward computes, for every model type it knows: llama, mistral, qwen2, qwen3, qwen3_moe,
/// deepseek_v3 and kimi_k2 (docs/native-target.md).
struct TargetConfig {
  std::string model_type;
  std::int64_t hidden = 0, vocab = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0,
               intermediate = 0, max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  bool tied_head = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false;
  std::vector<std::int64_t> window;  // of each layer; 0 = full attention
  LatentConfig latent;
  ExpertConfig experts;
  WeightQuantisation quantisation;  // of a folder
};

bool has_experts(const TargetConfig& config, std::int64_t layer);
/// Is there a layer without experts?
bool has_dense_layer(const TargetConfig& config);

/// Reads a transformers config.json; of a model for pictures and text, the text part. kConfig names what is
/// not known: nothing that changes the arithmetic is passed over.
Result<TargetConfig> target_config_from_json(const Json& json);
/// Of a GGUF file of architecture llama, qwen2, qwen3, qwen3moe or deepseek2. kNotFound, kDataLoss, kConfig
/// (another architecture, or a setting that is not known).
Result<TargetConfig> target_config_from_gguf(const std::string& path);

}  // namespace eaglet
