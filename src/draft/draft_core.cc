#include "draft/draft_core.h"

#include <algorithm>
#include <numeric>

namespace eaglet::draft_core {

AllWeights point_into(const DraftConfig& config, const std::vector<ParameterInfo>& table, float* block,
                      std::int64_t elements) {
  const auto at = [&](const std::string& name) -> float* {
    for (const ParameterInfo& info : table)
      if (info.name == name) return info.offset + info.elements <= elements ? block + info.offset : nullptr;
    return nullptr;
  };
  AllWeights w;
  w.fc = at("fc.weight");
  w.input_norm = at("input_norm.weight");
  w.embed_norm = at("layers.0.input_layernorm.weight");
  w.norm = at("norm.weight");
  w.lm_head = at("lm_head.weight");
  if (config.fc_norm)
    for (std::int64_t i = 0; i < config.num_aux(); ++i)
      w.fc_norm.push_back(at("fc_norm." + std::to_string(i) + ".weight"));
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    LayerWeights l;
    l.state_norm = at(layer + (i == 0 ? "hidden_norm.weight" : "input_layernorm.weight"));
    l.post_norm = at(layer + "post_attention_layernorm.weight");
    l.q = at(layer + "self_attn.q_proj.weight");
    l.k = at(layer + "self_attn.k_proj.weight");
    l.v = at(layer + "self_attn.v_proj.weight");
    l.q_norm = at(layer + "self_attn.q_norm.weight");
    l.k_norm = at(layer + "self_attn.k_norm.weight");
    l.o = at(layer + "self_attn.o_proj.weight");
    l.gate = at(layer + "mlp.gate_proj.weight");
    l.up = at(layer + "mlp.up_proj.weight");
    l.down = at(layer + "mlp.down_proj.weight");
    w.layers.push_back(l);
  }
  return w;
}

AttentionShape Core::attention_shape(std::int64_t layer) const {
  const auto l = static_cast<std::size_t>(layer);
  return {dims.N, dims.Kv, dims.D, l < config.sliding_window.size() ? config.sliding_window[l] : 0};
}

LayerRows Core::layer_rows(int k, std::int64_t layer) const {
  const auto step_index = static_cast<std::size_t>(k);
  const RowPlan::Step& step = plan.steps[step_index];
  LayerRows rows;
  if (k == 0) {
    rows.n_in = num_keys();
    rows.in_cos = buffers.key_cos;
    rows.in_sin = buffers.key_sin;
  } else {
    rows.n_in = num_live(k);
    rows.in_source = step.source_key.data();
    rows.in_cos = buffers.cos[step_index];
    rows.in_sin = buffers.sin[step_index];
  }
  if (k == 0 && layer + 1 < dims.L) {  // below the last layer every key row is computed in full at step 0
    rows.n_q = rows.n_in;
    rows.spans = &plan.key_spans;
    rows.key_of_query = buffers.identity.data();
    rows.q_cos = buffers.key_cos;
    rows.q_sin = buffers.key_sin;
    return rows;
  }
  rows.n_q = num_live(k);
  if (k == 0) rows.q_in = step.key_of_live.data();
  rows.q_source = step.source_key.data();
  rows.spans = &step.spans;
  rows.key_of_query = step.key_of_live.data();
  rows.q_cos = buffers.cos[step_index];
  rows.q_sin = buffers.sin[step_index];
  return rows;
}

AttentionInputs attention_inputs(const Core& core, int k, std::int64_t layer, const LayerRows& rows,
                                 AttentionPointers* pointers) {
  const auto l = static_cast<std::size_t>(layer);
  pointers->own_keys.clear();
  pointers->own_values.clear();
  pointers->own_index.clear();
  pointers->d_own_keys.clear();
  pointers->d_own_values.clear();
  for (int j = 1; j <= k; ++j) {
    const LayerStep& own = core.buffers.at[static_cast<std::size_t>(j)][l];
    pointers->own_keys.push_back(own.k);
    pointers->own_values.push_back(own.v);
    pointers->own_index.push_back(
        core.plan.own_index[static_cast<std::size_t>(k)][static_cast<std::size_t>(j)].data());
    pointers->d_own_keys.push_back(own.d_k);
    pointers->d_own_values.push_back(own.d_v);
  }
  const LayerStep& zero = core.buffers.at[0][l];
  AttentionInputs in;
  in.num_queries = rows.n_q;
  in.spans = rows.spans;
  in.key_of_query = rows.key_of_query;
  in.queries = core.buffers.at[static_cast<std::size_t>(k)][l].q;
  in.keys0 = zero.k;
  in.values0 = zero.v;
  in.num_own = k;
  in.own_keys = pointers->own_keys.data();
  in.own_values = pointers->own_values.data();
  in.own_index = pointers->own_index.data();
  return in;
}

namespace {

// Books buffers and remembers where their pointers go once the arena is there.
class Booker {
 public:
  explicit Booker(FloatArena* arena) : arena_(arena) {}
  void operator()(float** where, const char* name, std::int64_t floats) {
    pending_.push_back({where, arena_->book(name, floats)});
  }
  bool take() {
    if (!arena_->allocate()) return false;
    for (const auto& [where, handle] : pending_) *where = arena_->at(handle);
    return true;
  }

 private:
  FloatArena* arena_;
  std::vector<std::pair<float**, FloatArena::Handle>> pending_;
};

void book_layer_step(Booker& book, const Dims& d, std::int64_t rows, bool qk_norm, bool gradients,
                     bool own_input, LayerStep* s) {
  if (own_input) book(&s->x_in, "x_in", rows * d.H);
  book(&s->hn, "hn", rows * d.H);
  book(&s->hn_inv, "hn_inv", rows);
  book(&s->q, "q", rows * d.q_width());
  book(&s->k, "k", rows * d.kv_width());
  book(&s->v, "v", rows * d.kv_width());
  if (qk_norm) {
    book(&s->q_raw, "q_raw", rows * d.q_width());
    book(&s->k_raw, "k_raw", rows * d.kv_width());
    book(&s->q_inv, "q_inv", rows * d.N);
    book(&s->k_inv, "k_inv", rows * d.Kv);
  }
  book(&s->attn, "attn", rows * d.q_width());
  book(&s->lse, "lse", rows * d.N);
  book(&s->x_mid, "x_mid", rows * d.H);
  book(&s->zn, "zn", rows * d.H);
  book(&s->z_inv, "z_inv", rows);
  book(&s->gate, "gate", rows * d.F);
  book(&s->up, "up", rows * d.F);
  book(&s->x_out, "x_out", rows * d.H);
  if (gradients) {
    book(&s->d_k, "d_k", rows * d.kv_width());
    book(&s->d_v, "d_v", rows * d.kv_width());
  }
}

void book_inputs(Booker& book, const Core& core, std::int64_t rows, bool gradients, Buffers* b) {
  const Dims& d = core.dims;
  book(&b->aux, "aux", rows * d.A * d.Ht);
  if (core.config.norm_before_fc || core.config.fc_norm) {
    book(&b->aux_normed, "aux_normed", rows * d.A * d.Ht);
    book(&b->aux_inv, "aux_inv", rows * d.A);
  }
  book(&b->h0, "h0", rows * d.H);
  book(&b->embed, "embed", rows * d.H);
  book(&b->embed_normed, "embed_normed", rows * d.H);
  book(&b->embed_inv, "embed_inv", rows);
  book(&b->embed_q, "embed_q", rows * d.q_width());
  book(&b->embed_k, "embed_k", rows * d.kv_width());
  book(&b->embed_v, "embed_v", rows * d.kv_width());
  if (gradients) {
    book(&b->d_embed_q, "d_embed_q", rows * d.q_width());
    book(&b->d_embed_k, "d_embed_k", rows * d.kv_width());
    book(&b->d_embed_v, "d_embed_v", rows * d.kv_width());
  }
  book(&b->key_cos, "key_cos", rows * d.D / 2);
  book(&b->key_sin, "key_sin", rows * d.D / 2);
  book(&b->teacher_raw, "teacher_raw", rows * d.Ht);
  book(&b->teacher, "teacher", rows * d.Ht);
  book(&b->teacher_inv, "teacher_inv", rows);
}

void book_scratch(Booker& book, const Core& core, std::int64_t rows, bool gradients, int threads,
                  Buffers* b) {
  const Dims& d = core.dims;
  book(&b->hn_of_queries, "hn_of_queries", rows * d.H);
  book(&b->act, "act", rows * d.F);
  if (gradients) {
    book(&b->d_x, "d_x", rows * d.H);
    book(&b->d_in, "d_in", rows * d.H);
    book(&b->d_hn, "d_hn", rows * d.H);
    book(&b->d_part, "d_part", rows * std::max(d.H, d.A * d.Ht));
    book(&b->d_attn, "d_attn", rows * d.q_width());
    book(&b->d_q, "d_q", rows * d.q_width());
  }
  b->attention_scratch_floats = attention_scratch_floats(core.attention_shape(0), rows, d.K);
  book(&b->attention_scratch, "attention_scratch", threads * b->attention_scratch_floats);
  book(&b->head_scratch, "head_scratch", head_loss_scratch_floats({d.H, d.Ht, d.Vd, d.K}, threads));
  book(&b->norm_partial, "norm_partial", threads * std::max({d.H, d.A * d.Ht, d.D}));
  book(&b->argmax_scratch, "argmax_scratch", best_over_vocab_scratch_floats(d.V));
}

}  // namespace

bool take_buffers(std::int64_t max_rows, bool with_gradients, int threads, Core* core) {
  const Dims& d = core->dims;
  const auto steps = static_cast<std::size_t>(d.K), layers = static_cast<std::size_t>(d.L);
  Buffers& b = core->buffers;
  Booker book(&b.arena);
  book_inputs(book, *core, max_rows, with_gradients, &b);
  for (auto* list : {&b.cos, &b.sin, &b.f_normed, &b.f_inv, &b.xs, &b.d_xs, &b.loss})
    list->assign(steps, nullptr);
  b.at.assign(steps, std::vector<LayerStep>(layers, LayerStep{}));
  for (std::size_t k = 0; k < steps; ++k) {
    book(&b.cos[k], "cos", max_rows * d.D / 2);
    book(&b.sin[k], "sin", max_rows * d.D / 2);
    book(&b.f_normed[k], "f_normed", max_rows * d.H);
    book(&b.f_inv[k], "f_inv", max_rows);
    book(&b.xs[k], "xs", max_rows * d.H);
    if (with_gradients) book(&b.d_xs[k], "d_xs", max_rows * d.H);
    book(&b.loss[k], "loss", max_rows);
    for (std::size_t l = 0; l < layers; ++l)
      book_layer_step(book, d, max_rows, core->config.qk_norm, with_gradients, l == 0 && k > 0, &b.at[k][l]);
  }
  book_scratch(book, *core, max_rows, with_gradients, threads, &b);
  if (!book.take()) return false;
  for (std::size_t k = 0; k < steps; ++k)
    for (std::size_t l = 0; l < layers; ++l) {
      if (l > 0) b.at[k][l].x_in = b.at[k][l - 1].x_out;
      if (l == 0 && k == 0) b.at[k][l].x_in = b.h0;
    }
  const auto rows = static_cast<std::size_t>(max_rows);
  b.best.assign(steps, std::vector<std::int32_t>(rows));
  b.entry_weight.assign(steps, std::vector<float>());
  for (auto& weights : b.entry_weight) weights.reserve(rows);
  b.teacher_best.resize(rows);
  b.teacher_best_full.resize(rows);
  b.identity.resize(rows);
  std::iota(b.identity.begin(), b.identity.end(), 0);
  return true;
}

}  // namespace eaglet::draft_core
