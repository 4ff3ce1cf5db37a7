#include <cmath>

#include "draft/draft_core.h"
#include "ops/bias.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/swiglu.h"

namespace eaglet::draft_core {
namespace {

// h0 [S, H] = fc(g), g normed first when the draft wants it.
Status fuse_aux_states(const DraftInputs& inputs, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const std::int64_t keys = core->num_keys(), width = d.A * d.Ht;
  const double eps = core->config.rms_norm_eps;
  EAGLET_RETURN_IF_ERROR(fetch_states(inputs, core->chunk.rows, keys, width, true, core, b.aux));
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
  core->products.fc->forward(keys, fused, false, b.h0);
  return {};
}

// The embedding half of q, k and v, with their biases: the same for row p at step k as for row p+k at step 0,
// so made once.
void project_embeddings(Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const std::int64_t rows = core->num_rows();
  const LayerWeights& w = core->weights.layers[0];
  const LayerProducts& p = core->products.layers[0];
  gather_rows(rows, d.H, core->embed_tokens, core->index.tokens, b.embed);
  rms_norm(rows, d.H, b.embed, d.H, core->weights.embed_norm, core->config.rms_norm_eps, b.embed_normed, d.H,
           b.embed_inv);
  p.embed_q->forward(rows, b.embed_normed, false, b.embed_q);
  add_bias(rows, d.q_width(), w.q_bias, b.embed_q);
  p.embed_k->forward(rows, b.embed_normed, false, b.embed_k);
  add_bias(rows, d.kv_width(), w.k_bias, b.embed_k);
  p.embed_v->forward(rows, b.embed_normed, false, b.embed_v);
  add_bias(rows, d.kv_width(), w.v_bias, b.embed_v);
}

void key_angles(Core* core) {
  Buffers& b = core->buffers;
  rope_angles(core->num_keys(), core->index.key_positions, core->dims.D / 2, core->inv_freq,
              core->rope.attention_scaling, b.key_cos, b.key_sin);
}

void query_angles(Core* core) {
  Buffers& b = core->buffers;
  for (int k = 0; k < core->dims.K; ++k) {
    const auto step = static_cast<std::size_t>(k);
    rope_angles(core->num_live(k), core->index.steps[step].positions, core->dims.D / 2, core->inv_freq,
                core->rope.attention_scaling, b.cos[step], b.sin[step]);
  }
}

// One of k and v of the rows that give keys: y [n_in, Kv*D] from the state, and for layer 0 from the
// embedding.
void project_state(const LayerRows& rows, std::int64_t layer, const Core& core, const LayerStep& s,
                   const LinearWeight& product, const float* bias, const float* embedded, float* y) {
  if (layer == 0) gather_rows(rows.n_in, core.dims.kv_width(), embedded, rows.in_source, y);
  product.forward(rows.n_in, s.hn, layer == 0, y);
  if (layer > 0) add_bias(rows.n_in, core.dims.kv_width(), bias, y);
}

void project_keys(const LayerRows& rows, std::int64_t layer, Core* core, LayerStep* s) {
  const Dims& d = core->dims;
  const LayerWeights& w = core->weights.layers[static_cast<std::size_t>(layer)];
  const LayerProducts& p = core->products.layers[static_cast<std::size_t>(layer)];
  project_state(rows, layer, *core, *s, *p.k, w.k_bias, core->buffers.embed_k, s->k);
  project_state(rows, layer, *core, *s, *p.v, w.v_bias, core->buffers.embed_v, s->v);
  if (core->config.qk_norm) {
    gather_rows(rows.n_in, d.kv_width(), s->k, nullptr, s->k_raw);
    rms_norm(rows.n_in * d.Kv, d.D, s->k_raw, d.D, w.k_norm, core->config.rms_norm_eps, s->k, d.D, s->k_inv);
  }
  rope_rotate(rows.n_in, d.Kv, d.D / 2, rows.in_cos, rows.in_sin, s->k);
}

void project_queries(const LayerRows& rows, std::int64_t layer, Core* core, LayerStep* s) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerWeights& w = core->weights.layers[static_cast<std::size_t>(layer)];
  const float* hn = s->hn;
  if (rows.q_in != nullptr) {
    gather_rows(rows.n_q, d.H, s->hn, rows.q_in, b.hn_of_queries);
    hn = b.hn_of_queries;
  }
  if (layer == 0) gather_rows(rows.n_q, d.q_width(), b.embed_q, rows.q_source, s->q);
  core->products.layers[static_cast<std::size_t>(layer)].q->forward(rows.n_q, hn, layer == 0, s->q);
  if (layer > 0) add_bias(rows.n_q, d.q_width(), w.q_bias, s->q);
  if (core->config.qk_norm) {
    gather_rows(rows.n_q, d.q_width(), s->q, nullptr, s->q_raw);
    rms_norm(rows.n_q * d.N, d.D, s->q_raw, d.D, w.q_norm, core->config.rms_norm_eps, s->q, d.D, s->q_inv);
  }
  rope_rotate(rows.n_q, d.N, d.D / 2, rows.q_cos, rows.q_sin, s->q);
}

void norm_input(const LayerRows& rows, std::int64_t layer, Core* core, LayerStep* s) {
  rms_norm(rows.n_in, core->dims.H, s->x_in, core->dims.H,
           core->weights.layers[static_cast<std::size_t>(layer)].state_norm, core->config.rms_norm_eps, s->hn,
           core->dims.H, s->hn_inv);
}

// Queries, attention and MLP; the input is normed and the keys are there.
void layer_answers(int k, std::int64_t layer, const LayerRows& rows, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const LayerWeights& w = core->weights.layers[static_cast<std::size_t>(layer)];
  const LayerProducts& p = core->products.layers[static_cast<std::size_t>(layer)];
  LayerStep* s = &b.at[static_cast<std::size_t>(k)][static_cast<std::size_t>(layer)];
  project_queries(rows, layer, core, s);
  const AttentionInputs in = attention_inputs(k, layer, rows, core);
  attention(core->attention_shape(layer), in, s->attn, s->lse, b.attention_scratch,
            b.attention_scratch_floats);

  const bool normed_residual = core->config.norm_before_residual && layer == 0;
  gather_rows(rows.n_q, d.H, normed_residual ? s->hn : s->x_in, rows.q_in, s->x_mid);
  p.o->forward(rows.n_q, s->attn, true, s->x_mid);
  add_bias(rows.n_q, d.H, w.o_bias, s->x_mid);

  rms_norm(rows.n_q, d.H, s->x_mid, d.H, w.post_norm, core->config.rms_norm_eps, s->zn, d.H, s->z_inv);
  p.gate->forward(rows.n_q, s->zn, false, s->gate);
  add_bias(rows.n_q, d.F, w.gate_bias, s->gate);
  p.up->forward(rows.n_q, s->zn, false, s->up);
  add_bias(rows.n_q, d.F, w.up_bias, s->up);
  swiglu(rows.n_q, d.F, s->gate, s->up, b.act);
  gather_rows(rows.n_q, d.H, s->x_mid, nullptr, s->x_out);
  p.down->forward(rows.n_q, b.act, true, s->x_out);
  add_bias(rows.n_q, d.H, w.down_bias, s->x_out);
}

void step_forward(int k, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const auto step = static_cast<std::size_t>(k), last = static_cast<std::size_t>(d.L - 1);
  if (k > 0) {  // the state carried over from the step before
    const float* carried = core->config.norm_output ? b.f_normed[step - 1] : b.at[step - 1][last].x_out;
    gather_rows(core->num_live(k), d.H, carried, core->index.steps[step].parent, b.at[step][0].x_in);
  }
  for (std::int64_t layer = k == 0 ? d.L - 1 : 0; layer < d.L; ++layer) {  // step 0 began in keys_forward()
    const LayerRows rows = core->layer_rows(k, layer);
    LayerStep* s = &b.at[step][static_cast<std::size_t>(layer)];
    if (k > 0) {
      norm_input(rows, layer, core, s);
      project_keys(rows, layer, core, s);
    }
    layer_answers(k, layer, rows, core);
  }
  rms_norm(core->num_live(k), d.H, b.at[step][last].x_out, d.H, core->weights.norm, core->config.rms_norm_eps,
           b.f_normed[step], d.H, b.f_inv[step]);
  gather_rows(core->num_entries(k), d.H, b.f_normed[step], core->index.steps[step].entry_live, b.xs[step]);
}

// d total / d loss of every entry. 1e-5 in the denominator as speculators has it: a step without a counted
// row then weighs nothing instead of NaN. A sampled row stands for 1 / share rows.
void weigh_entries(Core* core) {
  Buffers& b = core->buffers;
  double decay = 1.0;
  for (std::size_t k = 0; k < b.xs.size(); ++k) {
    const ChunkPlan::Step& step = core->chunk.steps[k];
    const double counted = core->sharing.counted.empty() ? static_cast<double>(core->row_plan.counted[k])
                                                         : core->sharing.counted[k];
    const double of_step = core->options.step_weights.empty() ? decay : core->options.step_weights[k];
    const auto weight = static_cast<float>(of_step / core->options.row_sampling / (counted + 1e-5));
    b.entry_weight[k].clear();
    for (const std::uint8_t counts : step.entry_counted)
      b.entry_weight[k].push_back(counts != 0 ? weight : 0.0f);
    decay *= core->options.step_decay;
  }
}

}  // namespace

Status keys_forward(const DraftInputs& inputs, bool keys_known, Core* core) {
  EAGLET_RETURN_IF_ERROR(fuse_aux_states(inputs, core));
  project_embeddings(core);
  key_angles(core);
  for (std::int64_t layer = 0; layer < core->dims.L; ++layer) {
    const LayerRows rows = core->layer_rows(0, layer);
    LayerStep* s = &core->buffers.at[0][static_cast<std::size_t>(layer)];
    norm_input(rows, layer, core, s);
    // The per-head norm's backward needs the raw keys of the chunk as well.
    if (!keys_known || core->config.qk_norm) project_keys(rows, layer, core, s);
    if (layer + 1 < core->dims.L) layer_answers(0, layer, rows, core);
  }
  return {};
}

void queries_forward(Core* core) {
  query_angles(core);
  for (int k = 0; k < core->dims.K; ++k) step_forward(k, core);
}

Status head_and_loss(const DraftInputs& inputs, bool with_gradients, Core* core) {
  const Dims& d = core->dims;
  Buffers& b = core->buffers;
  const auto teachers = static_cast<std::int64_t>(core->chunk.teachers.size());
  EAGLET_RETURN_IF_ERROR(
      fetch_states(inputs, core->chunk.teachers, teachers, d.Ht, false, core, b.teacher_raw));
  rms_norm(teachers, d.Ht, b.teacher_raw, d.Ht, core->verifier.final_norm, core->verifier.rms_norm_eps,
           b.teacher, d.Ht, b.teacher_inv);
  weigh_entries(core);
  HeadLossInputs& in = core->head_inputs;
  HeadLossOutputs& out = core->head_outputs;
  in.num_teachers = teachers;
  in.teacher_states = b.teacher;
  const Products& products = core->products;
  in.verifier_head =
      with_gradients && products.teacher != nullptr ? products.teacher.get() : products.exact_teacher.get();
  if (core->options.teacher_vocab == TeacherVocab::kWhole) {
    EAGLET_ASSIGN_OR_RETURN(in.whole_verifier_head, whole_head(core));
  }
  in.draft_to_target = core->draft_to_target;
  in.head = core->products.head.get();
  in.xs.clear();
  in.teacher.clear();
  in.weight.clear();
  out.loss.clear();
  out.best.clear();
  out.d_xs.clear();
  out.teacher_best = b.teacher_best.data();
  out.teacher_best_whole = b.teacher_best_full.data();
  out.d_head = with_gradients ? core->gradients.lm_head : nullptr;
  for (std::size_t k = 0; k < b.xs.size(); ++k) {
    in.xs.push_back(b.xs[k]);
    in.teacher.push_back(&core->chunk.steps[k].entry_teacher);
    in.weight.push_back(&b.entry_weight[k]);
    out.loss.push_back(b.loss[k].data());
    out.best.push_back(b.best[k].data());
    if (with_gradients) out.d_xs.push_back(b.xs[k]);
  }
  head_loss(core->head_shape(), core->options.losses, in, out, b.head_scratch, &core->head_workspace);
  return {};
}

}  // namespace eaglet::draft_core
