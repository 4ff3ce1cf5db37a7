#include <utility>

#include "draft/draft_core.h"
#include "ops/bias.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/swiglu.h"

namespace eaglet::draft_core {
namespace {

// d_x [n_q, H]: gradient of x_out in, gradient of x_mid out.
void mlp_backward(const LayerRows& rows, std::int64_t layer, Core* core, LayerStep* s) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerWeights& w = core->weights.layers[static_cast<std::size_t>(layer)];
  const LayerProducts& p = core->products.layers[static_cast<std::size_t>(layer)];
  const LayerWeights& g = core->gradients.layers[static_cast<std::size_t>(layer)];
  p.down->backward_input(rows.n_q, b.d_x, false, b.act);
  swiglu_backward(rows.n_q, d.F, s->gate, s->up, b.act);  // gate, up become their gradients, act is act again
  p.down->backward_weight(rows.n_q, b.d_x, b.act, g.down);
  bias_backward(rows.n_q, d.H, b.d_x, g.down_bias);
  p.gate->backward_input(rows.n_q, s->gate, false, b.d_part);
  p.up->backward_input(rows.n_q, s->up, true, b.d_part);
  p.gate->backward_weight(rows.n_q, s->gate, s->zn, g.gate);
  p.up->backward_weight(rows.n_q, s->up, s->zn, g.up);
  bias_backward(rows.n_q, d.F, s->gate, g.gate_bias);
  bias_backward(rows.n_q, d.F, s->up, g.up_bias);
  rms_norm_backward(rows.n_q, d.H, s->x_mid, w.post_norm, s->z_inv, b.d_part, true, b.d_x, g.post_norm,
                    b.norm_partial);
}

void heads_backward(const LayerRows& rows, std::int64_t layer, Core* core, LayerStep* s) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerWeights& w = core->weights.layers[static_cast<std::size_t>(layer)];
  const LayerWeights& g = core->gradients.layers[static_cast<std::size_t>(layer)];
  rope_rotate_backward(rows.n_q, d.N, d.D / 2, rows.q_cos, rows.q_sin, b.d_q);
  rope_rotate_backward(rows.n_in, d.Kv, d.D / 2, rows.in_cos, rows.in_sin, s->d_k);
  if (!core->config.qk_norm) return;
  rms_norm_backward(rows.n_q * d.N, d.D, s->q_raw, w.q_norm, s->q_inv, b.d_q, false, b.d_q, g.q_norm,
                    b.norm_partial);
  rms_norm_backward(rows.n_in * d.Kv, d.D, s->k_raw, w.k_norm, s->k_inv, s->d_k, false, s->d_k, g.k_norm,
                    b.norm_partial);
}

void attention_part_backward(int k, const LayerRows& rows, std::int64_t layer, Core* core, LayerStep* s) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerProducts& p = core->products.layers[static_cast<std::size_t>(layer)];
  const LayerWeights& g = core->gradients.layers[static_cast<std::size_t>(layer)];
  p.o->backward_input(rows.n_q, b.d_x, false, b.d_attn);
  p.o->backward_weight(rows.n_q, b.d_x, s->attn, g.o);
  bias_backward(rows.n_q, d.H, b.d_x, g.o_bias);
  const AttentionInputs in = attention_inputs(k, layer, rows, core);
  const AttentionPointers& pointers = core->attention_pointers;
  const LayerStep& zero = b.at[0][static_cast<std::size_t>(layer)];
  AttentionGradients gradients;
  gradients.d_out = b.d_attn;
  gradients.d_queries = b.d_q;
  gradients.d_keys0 = zero.d_k;
  gradients.d_values0 = zero.d_v;
  gradients.d_own_keys = pointers.d_own_keys.data();
  gradients.d_own_values = pointers.d_own_values.data();
  attention_backward(core->attention_shape(layer), in, s->attn, s->lse, gradients, b.attention_scratch,
                     b.attention_scratch_floats);
}

// From d_q, d_k, d_v to d_hn [n_in, H], the state halves of the weights, and (layer 0) the embedding halves.
void qkv_backward(const LayerRows& rows, std::int64_t layer, Core* core, LayerStep* s) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerProducts& p = core->products.layers[static_cast<std::size_t>(layer)];
  const LayerWeights& g = core->gradients.layers[static_cast<std::size_t>(layer)];
  const std::int64_t state = layer == 0 ? d.H : 0;
  const float* hn_q = s->hn;
  if (rows.q_in != nullptr) {
    gather_rows(rows.n_q, d.H, s->hn, rows.q_in, b.hn_of_queries);
    hn_q = b.hn_of_queries;
  }
  p.q->backward_weight(rows.n_q, b.d_q, hn_q, g.q + state);
  p.k->backward_weight(rows.n_in, s->d_k, s->hn, g.k + state);
  p.v->backward_weight(rows.n_in, s->d_v, s->hn, g.v + state);
  p.k->backward_input(rows.n_in, s->d_k, false, b.d_hn);
  p.v->backward_input(rows.n_in, s->d_v, true, b.d_hn);
  p.q->backward_input(rows.n_q, b.d_q, false, b.d_part);
  scatter_add_rows(rows.n_q, d.H, b.d_part, rows.q_in, b.d_hn);
  if (layer > 0) {
    bias_backward(rows.n_q, d.q_width(), b.d_q, g.q_bias);
    bias_backward(rows.n_in, d.kv_width(), s->d_k, g.k_bias);
    bias_backward(rows.n_in, d.kv_width(), s->d_v, g.v_bias);
    return;
  }
  scatter_add_rows(rows.n_q, d.q_width(), b.d_q, rows.q_source, b.d_embed_q);
  scatter_add_rows(rows.n_in, d.kv_width(), s->d_k, rows.in_source, b.d_embed_k);
  scatter_add_rows(rows.n_in, d.kv_width(), s->d_v, rows.in_source, b.d_embed_v);
}

// d_x [n_q, H]: gradient of x_out in; d_in [n_in, H]: gradient of x_in out.
void layer_backward(int k, std::int64_t layer, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerRows rows = core->layer_rows(k, layer);
  LayerStep* s = &b.at[static_cast<std::size_t>(k)][static_cast<std::size_t>(layer)];
  const LayerWeights& w = core->weights.layers[static_cast<std::size_t>(layer)];
  const LayerWeights& g = core->gradients.layers[static_cast<std::size_t>(layer)];
  mlp_backward(rows, layer, core, s);
  attention_part_backward(k, rows, layer, core, s);
  heads_backward(rows, layer, core, s);
  qkv_backward(rows, layer, core, s);
  const bool normed_residual = core->config.norm_before_residual && layer == 0;
  if (normed_residual) scatter_add_rows(rows.n_q, d.H, b.d_x, rows.q_in, b.d_hn);
  rms_norm_backward(rows.n_in, d.H, s->x_in, w.state_norm, s->hn_inv, b.d_hn, false, b.d_in, g.state_norm,
                    b.norm_partial);
  if (!normed_residual) scatter_add_rows(rows.n_q, d.H, b.d_x, rows.q_in, b.d_in);
}

// Gradient of x_out of the last layer at step k: from the head, and from the state that step k+1 took over
// (d_in of that step).
void start_step(int k, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const auto step = static_cast<std::size_t>(k), last = static_cast<std::size_t>(d.L - 1);
  const std::int64_t live = core->num_live(k);
  const bool carried = k + 1 < d.K;
  zero_rows(live, d.H, b.d_part);
  scatter_add_rows(core->num_entries(k), d.H, b.xs[step], core->index.steps[step].entry_live, b.d_part);
  if (carried && core->config.norm_output)
    scatter_add_rows(core->num_live(k + 1), d.H, b.d_in, core->index.steps[step + 1].parent, b.d_part);
  rms_norm_backward(live, d.H, b.at[step][last].x_out, core->weights.norm, b.f_inv[step], b.d_part, false,
                    b.d_x, core->gradients.norm, b.norm_partial);
  if (carried && !core->config.norm_output)
    scatter_add_rows(core->num_live(k + 1), d.H, b.d_in, core->index.steps[step + 1].parent, b.d_x);
}

void embeddings_backward(Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const std::int64_t rows = core->num_rows();
  const LayerProducts& p = core->products.layers[0];
  const LayerWeights& g = core->gradients.layers[0];
  p.embed_q->backward_weight(rows, b.d_embed_q, b.embed_normed, g.q);
  p.embed_k->backward_weight(rows, b.d_embed_k, b.embed_normed, g.k);
  p.embed_v->backward_weight(rows, b.d_embed_v, b.embed_normed, g.v);
  bias_backward(rows, d.q_width(), b.d_embed_q, g.q_bias);
  bias_backward(rows, d.kv_width(), b.d_embed_k, g.k_bias);
  bias_backward(rows, d.kv_width(), b.d_embed_v, g.v_bias);
  p.embed_q->backward_input(rows, b.d_embed_q, false, b.d_hn);
  p.embed_k->backward_input(rows, b.d_embed_k, true, b.d_hn);
  p.embed_v->backward_input(rows, b.d_embed_v, true, b.d_hn);
  float* d_embed = core->gradients.embed == nullptr ? nullptr : b.d_part;  // frozen: only the norm learns
  rms_norm_backward(rows, d.H, b.embed, core->weights.embed_norm, b.embed_inv, b.d_hn, false, d_embed,
                    core->gradients.embed_norm, b.norm_partial);
  if (d_embed != nullptr)
    scatter_add_repeated_rows(rows, d.H, d_embed, core->index.tokens, core->gradients.embed);
}

// d_in holds the gradient of h0 [S, H].
void fuse_backward(Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const std::int64_t keys = core->num_keys(), width = d.A * d.Ht;
  const bool normed = core->config.norm_before_fc || core->config.fc_norm;
  core->products.fc->backward_weight(keys, b.d_in, normed ? b.aux_normed : b.aux, core->gradients.fc);
  if (!normed) return;
  core->products.fc->backward_input(keys, b.d_in, false, b.d_part);
  if (core->config.norm_before_fc) {
    rms_norm_backward(keys, width, b.aux, core->weights.input_norm, b.aux_inv, b.d_part, false, nullptr,
                      core->gradients.input_norm, b.norm_partial);
    return;
  }
  for (std::int64_t i = 0; i < d.A; ++i)  // the captured states are data: only the norms' weights learn
    rms_norm_weight_backward(keys, d.Ht, b.aux + i * d.Ht, width, b.aux_inv + i * keys, b.d_part + i * d.Ht,
                             width, core->gradients.fc_norm[static_cast<std::size_t>(i)]);
}

void zero_chunk_gradients(Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  for (int k = 1; k < d.K; ++k)
    for (LayerStep& s : b.at[static_cast<std::size_t>(k)]) {
      zero_rows(core->num_live(k), d.kv_width(), s.d_k);
      zero_rows(core->num_live(k), d.kv_width(), s.d_v);
    }
  zero_rows(core->num_rows(), d.q_width(), b.d_embed_q);
  zero_rows(core->num_rows(), d.kv_width(), b.d_embed_k);
  zero_rows(core->num_rows(), d.kv_width(), b.d_embed_v);
}

// Everything from `first` to the end of the block has its last contribution. The table's order is the order
// in which backward finishes, turned round: embeddings, fc, layers, norm, head.
void tell_final(const Core& core, const float* first) {
  if (core.sharing.on_final && first != nullptr) core.sharing.on_final(first - core.gradient_block);
}

void tell_layer_final(const Core& core, std::int64_t layer) {
  const LayerWeights& g = core.gradients.layers[static_cast<std::size_t>(layer)];
  if (layer == 0)  // q, k and v still wait for the embedding half
    tell_final(core, g.o);
  else
    tell_final(core, g.state_norm);
}

}  // namespace

void zero_key_gradients(Core* core) {
  const std::int64_t rows = core->row_plan.keys, width = core->dims.kv_width();
  for (const BatchKeys& keys : core->buffers.keys) {
    zero_rows(rows, width, keys.d_k);
    zero_rows(rows, width, keys.d_v);
  }
}

void backward(bool last_chunk, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  zero_chunk_gradients(core);
  if (last_chunk) tell_final(*core, core->gradients.lm_head);
  for (int k = static_cast<int>(d.K) - 1; k >= 0; --k) {
    start_step(k, core);
    if (last_chunk && k == 0) tell_final(*core, core->gradients.norm);
    for (std::int64_t layer = d.L - 1; layer >= 0; --layer) {
      layer_backward(k, layer, core);
      if (last_chunk && k == 0) tell_layer_final(*core, layer);
      if (layer > 0) std::swap(b.d_x, b.d_in);  // x_in of this layer is x_out of the one below
    }
  }
  embeddings_backward(core);
  fuse_backward(core);
  if (last_chunk) tell_final(*core, core->gradient_block);
}

}  // namespace eaglet::draft_core
