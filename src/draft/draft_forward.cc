#include <cmath>

#include "draft/draft_core.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/swiglu.h"

namespace eaglet::draft_core {
namespace {

// h0 [S, H] = fc(g), g normed first when the draft wants it.
void fuse_aux_states(const DraftInputs& inputs, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const std::int64_t keys = core->num_keys(), width = d.A * d.Ht;
  const double eps = core->config.rms_norm_eps;
  gather_rows(keys, width, inputs.aux_hidden_states, core->plan.key_rows.data(), b.aux);
  const float* fused = b.aux;
  if (core->config.norm_before_fc) {
    rms_norm(keys, width, b.aux, width, core->weights.input_norm, eps, b.aux_normed, width, b.aux_inv);
    fused = b.aux_normed;
  }
  if (core->config.fc_norm) {
    for (std::int64_t i = 0; i < d.A; ++i)
      rms_norm(keys, d.Ht, b.aux + i * d.Ht, width, core->weights.fc_norm[static_cast<std::size_t>(i)], eps,
               b.aux_normed + i * d.Ht, width, b.aux_inv + i * keys);
    fused = b.aux_normed;
  }
  linear(keys, d.H, width, fused, core->weights.fc, width, false, b.h0);
}

// The embedding half of q, k and v: the same for row p at step k as for row p+k at step 0, so made once.
void project_embeddings(const DraftInputs& inputs, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const std::int64_t keys = core->num_keys();
  const LayerWeights& w = core->weights.layers[0];
  std::vector<std::int32_t>& tokens = b.teacher_best_full;  // free at this point, and long enough
  for (std::int64_t i = 0; i < keys; ++i)
    tokens[static_cast<std::size_t>(i)] = inputs.input_ids[core->plan.key_rows[static_cast<std::size_t>(i)]];
  gather_rows(keys, d.H, core->embed_tokens, tokens.data(), b.embed);
  rms_norm(keys, d.H, b.embed, d.H, core->weights.embed_norm, core->config.rms_norm_eps, b.embed_normed, d.H,
           b.embed_inv);
  linear(keys, d.q_width(), d.H, b.embed_normed, w.q, 2 * d.H, false, b.embed_q);
  linear(keys, d.kv_width(), d.H, b.embed_normed, w.k, 2 * d.H, false, b.embed_k);
  linear(keys, d.kv_width(), d.H, b.embed_normed, w.v, 2 * d.H, false, b.embed_v);
}

void angles(Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  rope_angles(core->num_keys(), core->plan.key_positions.data(), d.D / 2, core->rope.inv_freq.data(),
              core->rope.attention_scaling, b.key_cos, b.key_sin);
  for (int k = 0; k < d.K; ++k) {
    const auto step = static_cast<std::size_t>(k);
    rope_angles(core->num_live(k), core->plan.steps[step].positions.data(), d.D / 2,
                core->rope.inv_freq.data(), core->rope.attention_scaling, b.cos[step], b.sin[step]);
  }
}

void project_qkv(const LayerRows& rows, std::int64_t layer, Core* core, LayerStep* s) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerWeights& w = core->weights.layers[static_cast<std::size_t>(layer)];
  const std::int64_t columns = layer == 0 ? 2 * d.H : d.H, state = layer == 0 ? d.H : 0;
  const bool add = layer == 0;  // the embedding half is there already
  const float* hn_q = s->hn;
  if (rows.q_in != nullptr) {
    gather_rows(rows.n_q, d.H, s->hn, rows.q_in, b.hn_of_queries);
    hn_q = b.hn_of_queries;
  }
  if (add) {
    gather_rows(rows.n_q, d.q_width(), b.embed_q, rows.q_source, s->q);
    gather_rows(rows.n_in, d.kv_width(), b.embed_k, rows.in_source, s->k);
    gather_rows(rows.n_in, d.kv_width(), b.embed_v, rows.in_source, s->v);
  }
  linear(rows.n_q, d.q_width(), d.H, hn_q, w.q + state, columns, add, s->q);
  linear(rows.n_in, d.kv_width(), d.H, s->hn, w.k + state, columns, add, s->k);
  linear(rows.n_in, d.kv_width(), d.H, s->hn, w.v + state, columns, add, s->v);
  if (core->config.qk_norm) {
    gather_rows(rows.n_q, d.q_width(), s->q, nullptr, s->q_raw);
    gather_rows(rows.n_in, d.kv_width(), s->k, nullptr, s->k_raw);
    const double eps = core->config.rms_norm_eps;
    rms_norm(rows.n_q * d.N, d.D, s->q_raw, d.D, w.q_norm, eps, s->q, d.D, s->q_inv);
    rms_norm(rows.n_in * d.Kv, d.D, s->k_raw, d.D, w.k_norm, eps, s->k, d.D, s->k_inv);
  }
  rope_rotate(rows.n_q, d.N, d.D / 2, rows.q_cos, rows.q_sin, s->q);
  rope_rotate(rows.n_in, d.Kv, d.D / 2, rows.in_cos, rows.in_sin, s->k);
}

void layer_forward(int k, std::int64_t layer, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerWeights& w = core->weights.layers[static_cast<std::size_t>(layer)];
  const LayerRows rows = core->layer_rows(k, layer);
  LayerStep* s = &b.at[static_cast<std::size_t>(k)][static_cast<std::size_t>(layer)];
  const double eps = core->config.rms_norm_eps;

  rms_norm(rows.n_in, d.H, s->x_in, d.H, w.state_norm, eps, s->hn, d.H, s->hn_inv);
  project_qkv(rows, layer, core, s);
  AttentionPointers pointers;
  const AttentionInputs in = attention_inputs(*core, k, layer, rows, &pointers);
  attention(core->attention_shape(layer), in, s->attn, s->lse, b.attention_scratch,
            b.attention_scratch_floats);

  const bool normed_residual = core->config.norm_before_residual && layer == 0;
  gather_rows(rows.n_q, d.H, normed_residual ? s->hn : s->x_in, rows.q_in, s->x_mid);
  linear(rows.n_q, d.H, d.q_width(), s->attn, w.o, d.q_width(), true, s->x_mid);

  rms_norm(rows.n_q, d.H, s->x_mid, d.H, w.post_norm, eps, s->zn, d.H, s->z_inv);
  linear(rows.n_q, d.F, d.H, s->zn, w.gate, d.H, false, s->gate);
  linear(rows.n_q, d.F, d.H, s->zn, w.up, d.H, false, s->up);
  swiglu(rows.n_q, d.F, s->gate, s->up, b.act);
  gather_rows(rows.n_q, d.H, s->x_mid, nullptr, s->x_out);
  linear(rows.n_q, d.H, d.F, b.act, w.down, d.F, true, s->x_out);
}

void step_forward(int k, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const auto step = static_cast<std::size_t>(k), last = static_cast<std::size_t>(d.L - 1);
  if (k > 0) {  // the state carried over from the step before
    const float* carried = core->config.norm_output ? b.f_normed[step - 1] : b.at[step - 1][last].x_out;
    gather_rows(core->num_live(k), d.H, carried, core->plan.steps[step].parent.data(), b.at[step][0].x_in);
  }
  for (std::int64_t layer = 0; layer < d.L; ++layer) layer_forward(k, layer, core);
  rms_norm(core->num_live(k), d.H, b.at[step][last].x_out, d.H, core->weights.norm, core->config.rms_norm_eps,
           b.f_normed[step], d.H, b.f_inv[step]);
  const auto& entries = core->plan.steps[step].entry_live;
  gather_rows(static_cast<std::int64_t>(entries.size()), d.H, b.f_normed[step], entries.data(), b.xs[step]);
}

}  // namespace

void forward(const DraftInputs& inputs, Core* core) {
  fuse_aux_states(inputs, core);
  project_embeddings(inputs, core);
  angles(core);
  for (int k = 0; k < core->dims.K; ++k) step_forward(k, core);
}

void head_and_loss(const DraftInputs& inputs, bool with_gradients, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const auto teachers = static_cast<std::int64_t>(core->plan.teachers.size());
  gather_rows(teachers, d.Ht, inputs.last_hidden_states, core->plan.teachers.data(), b.teacher_raw);
  rms_norm(teachers, d.Ht, b.teacher_raw, d.Ht, core->verifier.final_norm, core->verifier.rms_norm_eps,
           b.teacher, d.Ht, b.teacher_inv);
  HeadLossInputs in;
  HeadLossOutputs out;
  in.num_teachers = teachers;
  in.teacher_states = b.teacher;
  in.verifier_head = core->verifier_head_rows();
  in.head = core->weights.lm_head;
  out.teacher_best = b.teacher_best.data();
  out.d_head = with_gradients ? core->gradients.lm_head : nullptr;
  double decay = 1.0;
  for (std::size_t k = 0; k < b.xs.size(); ++k) {
    const RowPlan::Step& step = core->plan.steps[k];
    // 1e-5 in the denominator as speculators has it: a step without a counted row then weighs nothing instead
    // of NaN.
    const bool own = core->sharing.counted.empty();
    const double counted = own ? static_cast<double>(step.counted) : core->sharing.counted[k];
    const auto weight = static_cast<float>(decay / (counted + 1e-5));
    b.entry_weight[k].clear();
    for (const std::uint8_t counts : step.entry_counted)
      b.entry_weight[k].push_back(counts != 0 ? weight : 0.0f);
    decay *= core->options.step_decay;
    in.xs.push_back(b.xs[k]);
    in.teacher.push_back(&step.entry_teacher);
    in.weight.push_back(&b.entry_weight[k]);
    out.loss.push_back(b.loss[k]);
    out.best.push_back(b.best[k].data());
    if (with_gradients) out.d_xs.push_back(b.d_xs[k]);
  }
  head_loss({d.H, d.Ht, d.Vd, d.K}, core->options.losses, in, out, b.head_scratch);
}

}  // namespace eaglet::draft_core
