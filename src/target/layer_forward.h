#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "ops/attention.h"
#include "target/layer_products.h"
#include "target/target_config.h"
#include "target/target_tensors.h"

namespace eaglet {

struct StepCaches;  // kv_cache.h

/// Some rows of a pass: whole documents, end to end, no padding. When generating: the new rows of sequences.
struct DocumentChunk {
  std::int64_t first_row = 0, rows = 0, longest = 0;  // of the pass; the longest document
  std::vector<AttentionSpan> spans;                   // a document each, rows counted from first_row
  std::vector<std::int32_t> positions, own_row;       // of each row: in its document; 0, 1, 2 ...
  const StepCaches* caches = nullptr;                 // when generating
};

/// Memory that layers share; grows to what the largest chunk needs.
struct LayerScratch {
  std::vector<float> normed, inv, q, k, v, attended, log_sum_exp, attention, cos, sin;
  std::vector<float> gate, up, latent, compressed, head_parts, joined;
};

/// What rotates and scales the queries of every layer.
struct TargetRope {
  RopeTable table;
  double latent_scale = 1;  // on queries of latent attention, beside 1 / sqrt(width of a key)
};
TargetRope target_rope(const TargetConfig& config);

/// x [rows, hidden] += attention(norm(x)), the documents of the chunk each by itself. Source: the layers of
/// the transformers library; docs/native-target.md.
void attention_layer(const TargetConfig& config, const TargetRope& rope, const LayerTensors& layer,
                     const LayerProducts& products, std::int64_t window, const DocumentChunk& chunk, float* x,
                     LayerScratch* scratch);
/// The same where keys and values come from one narrow row a token.
void latent_attention_layer(const TargetConfig& config, const TargetRope& rope, const LayerTensors& layer,
                            const LayerProducts& products, const DocumentChunk& chunk, float* x,
                            LayerScratch* scratch);
/// x [n, hidden] += mlp(norm(x)).
void mlp_layer(const TargetConfig& config, const LayerTensors& layer, const LayerProducts& products,
               std::int64_t n, float* x, LayerScratch* scratch);
/// y [n, hidden] += down(silu(gate(z)) * up(z)), biases where the model has some.
void add_mlp(const MlpProducts& mlp, const MlpBiases& biases, std::int64_t n, std::int64_t hidden,
             const float* z, float* y, LayerScratch* scratch);

/// What every kind of attention shares. scratch->cos, scratch->sin [rows, half] of the chunk's positions:
void chunk_rope_angles(const RopeTable& table, const DocumentChunk& chunk, std::int64_t half,
                       LayerScratch* scratch);
/// scratch->attended [rows, heads x head_dim] from scratch->q, scratch->k, scratch->v, each document by
/// itself; over the caches when generating.
void attend(const AttentionShape& shape, const DocumentChunk& chunk, LayerScratch* scratch);
/// The rows of chunk.spans alone.
void attend_within_documents(const AttentionShape& shape, const DocumentChunk& chunk, LayerScratch* scratch);

}  // namespace eaglet
