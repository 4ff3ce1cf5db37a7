#pragma once

// The parts of DraftModel; only draft/*.cc include this.

#include <cstdint>
#include <string>
#include <vector>

#include "draft/draft_model.h"
#include "draft/row_plan.h"
#include "ops/attention.h"
#include "ops/head_loss.h"
#include "tensor/arena.h"

namespace eaglet::draft_core {

/// Pointers to one layer's weights, or to the gradients of the same tensors. Layer 0 reads [embedding |
/// state], so its q, k and v have 2H columns: the state half starts at column `state_column`.
struct LayerWeights {
  float* state_norm = nullptr;                     // hidden_norm of layer 0, input_layernorm above  [H]
  float* post_norm = nullptr;                      // [H]
  float *q = nullptr, *k = nullptr, *v = nullptr;  // [N*D | Kv*D, stored_columns]
  float *q_norm = nullptr, *k_norm = nullptr;      // [D] or nullptr
  float *o = nullptr, *gate = nullptr, *up = nullptr, *down = nullptr;
};

struct AllWeights {
  float *fc = nullptr, *input_norm = nullptr, *embed_norm = nullptr, *norm = nullptr, *lm_head = nullptr;
  std::vector<float*> fc_norm;  // [A] or empty
  std::vector<LayerWeights> layers;
};

/// Points into a block laid out as `table`; tensors beyond `elements` (a frozen head's gradient) become
/// nullptr.
AllWeights point_into(const DraftConfig& config, const std::vector<ParameterInfo>& table, float* block,
                      std::int64_t elements);

/// Dimension letters of DraftConfig, and what follows from them.
struct Dims {
  std::int64_t H, Ht, A, N, Kv, D, F, V, Vd, L, K;
  std::int64_t q_width() const { return N * D; }
  std::int64_t kv_width() const { return Kv * D; }
};

/// Activations of one layer at one drafting step, kept for backward. Rows: n_in (those that give keys) or n_q
/// (those that ask).
struct LayerStep {
  float *x_in, *hn, *hn_inv;             // [n_in, H] [n_in, H] [n_in]
  float *q, *k, *v;                      // after norm and rope [n_q, N*D] [n_in, Kv*D]
  float *q_raw, *k_raw, *q_inv, *k_inv;  // before the per-head norm (qk_norm only)
  float *attn, *lse;                     // [n_q, N*D] [n_q, N]
  float *x_mid, *zn, *z_inv;             // [n_q, H] [n_q, H] [n_q]
  float *gate, *up, *x_out;              // [n_q, F] [n_q, F] [n_q, H]
  float *d_k, *d_v;                      // gradients of k and v, gathered over all later steps
};

/// Everything a step writes, in one arena.
struct Buffers {
  FloatArena arena;
  float *aux, *aux_normed, *aux_inv, *h0;   // [S, A*Ht] ... [S, H]
  float *embed, *embed_normed, *embed_inv;  // [S, H]
  float *embed_q, *embed_k, *embed_v;       // the embedding half of q, k, v  [S, width]
  float *d_embed_q, *d_embed_k, *d_embed_v;
  float *key_cos, *key_sin;                             // [S, D/2]
  std::vector<float*> cos, sin;                         // [K] [n_k, D/2]
  std::vector<std::vector<LayerStep>> at;               // [K][L]
  std::vector<float*> f_normed, f_inv, xs, d_xs, loss;  // [K]
  float *teacher_raw, *teacher, *teacher_inv;
  float *hn_of_queries, *act, *d_x, *d_in, *d_hn, *d_part, *d_attn, *d_q;
  float *attention_scratch, *head_scratch, *norm_partial, *argmax_scratch;
  std::int64_t attention_scratch_floats = 0;
  std::vector<std::vector<std::int32_t>> best;                // [K] draft ids by entry
  std::vector<std::int32_t> teacher_best, teacher_best_full;  // by teacher row
  std::vector<std::vector<float>> entry_weight;               // [K]
  std::vector<std::int32_t> identity;                         // 0, 1, 2, ...
};

/// Which rows a layer works on at a step; nullptr index = identity.
struct LayerRows {
  std::int64_t n_in = 0, n_q = 0;
  const std::int32_t* q_in = nullptr;       // [n_q] row among the n_in rows
  const std::int32_t* q_source = nullptr;   // [n_q] key row whose token is embedded
  const std::int32_t* in_source = nullptr;  // [n_in]
  const std::vector<AttentionSpan>* spans = nullptr;
  const std::int32_t* key_of_query = nullptr;
  const float *q_cos = nullptr, *q_sin = nullptr, *in_cos = nullptr, *in_sin = nullptr;
};

/// All that forward and backward share.
struct Core {
  DraftConfig config;
  Dims dims;
  TttOptions options;
  VerifierTensors verifier;
  const float* embed_tokens = nullptr;  // [V, H]
  std::vector<float>
      verifier_head;  // [Vd, Ht], rows of the draft vocabulary (empty: the whole head is used in place)
  const float* verifier_head_rows() const {
    return verifier_head.empty() ? verifier.lm_head : verifier_head.data();
  }
  RopeTable rope;
  AllWeights weights, gradients;
  GradientSharing sharing;
  const float* gradient_block = nullptr;  // all gradients, in table order
  RowPlan plan;
  Buffers buffers;

  std::int64_t num_keys() const { return static_cast<std::int64_t>(plan.key_rows.size()); }
  std::int64_t num_live(int k) const {
    return static_cast<std::int64_t>(plan.steps[static_cast<std::size_t>(k)].live.size());
  }
  AttentionShape attention_shape(std::int64_t layer) const;
  LayerRows layer_rows(int k, std::int64_t layer) const;
};

/// Books and takes all memory for batches of at most max_rows rows. False when the system has not that much.
bool take_buffers(std::int64_t max_rows, bool with_gradients, int threads, Core* core);

/// Fills core->buffers up to the normed states of every step; core->plan must be made.
void forward(const DraftInputs& inputs, Core* core);
/// Head, losses and (when asked) the gradients of the normed states and of the head.
void head_and_loss(const DraftInputs& inputs, bool with_gradients, Core* core);
/// From the gradients of the normed states to those of every weight. Gradients must be zeroed before.
void backward(Core* core);

/// The attention inputs of a layer at a step; `keys` etc. are filled by the caller's arrays, which must
/// outlive the call.
struct AttentionPointers {
  std::vector<const float*> own_keys, own_values;
  std::vector<const std::int32_t*> own_index;
  std::vector<float*> d_own_keys, d_own_values;
};
AttentionInputs attention_inputs(const Core& core, int k, std::int64_t layer, const LayerRows& rows,
                                 AttentionPointers* pointers);

}  // namespace eaglet::draft_core
