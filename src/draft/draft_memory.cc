#include <algorithm>

#include "draft/draft_core.h"

namespace eaglet::draft_core {
namespace {

// Hands out consecutive pieces of a block; without a block it only counts.
class Bump {
 public:
  explicit Bump(float* block) : block_(block) {}
  void operator()(float** where, std::int64_t floats) {
    constexpr std::int64_t kAlignFloats = 16;  // 64 bytes: a cache line and the widest vector
    *where = block_ == nullptr ? nullptr : block_ + used_;
    used_ += (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  }
  std::int64_t used() const { return used_; }

 private:
  float* block_;
  std::int64_t used_ = 0;
};

void lay_out_batch(const Dims& d, const ChunkSizes& n, bool gradients, Bump& bump, Buffers* b) {
  for (BatchKeys& keys : b->keys) {
    bump(&keys.k, n.batch_keys * d.kv_width());
    bump(&keys.v, n.batch_keys * d.kv_width());
    if (!gradients) continue;
    bump(&keys.d_k, n.batch_keys * d.kv_width());
    bump(&keys.d_v, n.batch_keys * d.kv_width());
  }
}

void lay_out_inputs(const Core& core, const ChunkSizes& n, bool gradients, Bump& bump, Buffers* b) {
  const Dims& d = core.dims;
  bump(&b->aux, n.keys * d.A * d.Ht);
  if (core.config.norm_before_fc || core.config.fc_norm) {
    bump(&b->aux_normed, n.keys * d.A * d.Ht);
    bump(&b->aux_inv, n.keys * d.A);
  }
  bump(&b->h0, n.keys * d.H);
  bump(&b->embed, n.rows * d.H);
  bump(&b->embed_normed, n.rows * d.H);
  bump(&b->embed_inv, n.rows);
  bump(&b->embed_q, n.rows * d.q_width());
  bump(&b->embed_k, n.rows * d.kv_width());
  bump(&b->embed_v, n.rows * d.kv_width());
  if (gradients) {
    bump(&b->d_embed_q, n.rows * d.q_width());
    bump(&b->d_embed_k, n.rows * d.kv_width());
    bump(&b->d_embed_v, n.rows * d.kv_width());
  }
  bump(&b->key_cos, n.keys * d.D / 2);
  bump(&b->key_sin, n.keys * d.D / 2);
  bump(&b->teacher_raw, n.teachers * d.Ht);
  bump(&b->teacher, n.teachers * d.Ht);
  bump(&b->teacher_inv, n.teachers);
}

void lay_out_layer_step(const Core& core, std::int64_t n_in, std::int64_t n_q, bool gradients,
                        bool first_layer, bool first_step, Bump& bump, LayerStep* s) {
  const Dims& d = core.dims;
  if (first_layer && !first_step) bump(&s->x_in, n_in * d.H);
  bump(&s->hn, n_in * d.H);
  bump(&s->hn_inv, n_in);
  bump(&s->q, n_q * d.q_width());
  if (!first_step) {  // those of step 0 lie in the batch's keys
    bump(&s->k, n_in * d.kv_width());
    bump(&s->v, n_in * d.kv_width());
    if (gradients) {
      bump(&s->d_k, n_in * d.kv_width());
      bump(&s->d_v, n_in * d.kv_width());
    }
  }
  if (core.config.qk_norm) {
    bump(&s->q_raw, n_q * d.q_width());
    bump(&s->k_raw, n_in * d.kv_width());
    bump(&s->q_inv, n_q * d.N);
    bump(&s->k_inv, n_in * d.Kv);
  }
  bump(&s->attn, n_q * d.q_width());
  bump(&s->lse, n_q * d.N);
  bump(&s->x_mid, n_q * d.H);
  bump(&s->zn, n_q * d.H);
  bump(&s->z_inv, n_q);
  bump(&s->gate, n_q * d.F);
  bump(&s->up, n_q * d.F);
  bump(&s->x_out, n_q * d.H);
}

void lay_out_steps(const Core& core, const ChunkSizes& n, bool gradients, Bump& bump, Buffers* b) {
  const Dims& d = core.dims;
  for (std::size_t k = 0; k < b->at.size(); ++k) {
    bump(&b->cos[k], n.live[k] * d.D / 2);
    bump(&b->sin[k], n.live[k] * d.D / 2);
    for (std::int64_t l = 0; l < d.L; ++l) {
      const std::int64_t n_in = k == 0 ? n.keys : n.live[k];
      const std::int64_t n_q = k == 0 && l + 1 < d.L ? n.keys : n.live[k];
      lay_out_layer_step(core, n_in, n_q, gradients, l == 0, k == 0, bump,
                         &b->at[k][static_cast<std::size_t>(l)]);
    }
    bump(&b->f_normed[k], n.live[k] * d.H);
    bump(&b->f_inv[k], n.live[k]);
    bump(&b->xs[k], n.entries[k] * d.H);
  }
}

void lay_out_scratch(const Core& core, const ChunkSizes& n, bool gradients, int threads, Bump& bump,
                     Buffers* b) {
  const Dims& d = core.dims;
  const std::int64_t queries = d.L > 1 ? n.keys : *std::max_element(n.live.begin(), n.live.end());
  const std::int64_t most = std::max({n.keys, n.rows, queries});
  bump(&b->hn_of_queries, queries * d.H);
  bump(&b->act, queries * d.F);
  if (gradients) {
    const bool normed = core.config.norm_before_fc || core.config.fc_norm;
    bump(&b->d_x, most * d.H);
    bump(&b->d_in, most * d.H);
    bump(&b->d_hn, most * d.H);
    bump(&b->d_part, most * (normed ? std::max(d.H, d.A * d.Ht) : d.H));
    bump(&b->d_attn, queries * d.q_width());
    bump(&b->d_q, queries * d.q_width());
  }
  if (core.on_device()) return;  // ops of a device have memory of their own
  b->attention_scratch_floats =
      attention_scratch_floats(core.attention_shape(0), std::max<std::int64_t>(n.longest_document, 1), d.K);
  bump(&b->attention_scratch, threads * b->attention_scratch_floats);
  bump(&b->head_scratch, head_loss_scratch_floats(core.head_shape(), threads));
  bump(&b->norm_partial, threads * std::max({d.H, d.A * d.Ht, d.D, d.F, d.q_width()}));
  bump(&b->argmax_scratch, best_over_vocab_scratch_floats(d.V));
}

// What of the layout is a reference to another buffer.
void link(const ChunkPlan& chunk, const Dims& d, Buffers* b) {
  for (std::size_t k = 0; k < b->at.size(); ++k)
    for (std::size_t l = 0; l < b->at[k].size(); ++l) {
      if (l > 0) b->at[k][l].x_in = b->at[k][l - 1].x_out;
      if (l == 0 && k == 0) b->at[k][l].x_in = b->h0;
    }
  const std::int64_t first = chunk.first_key * d.kv_width();
  for (std::size_t l = 0; l < b->keys.size(); ++l) {
    LayerStep& zero = b->at[0][l];
    const BatchKeys& keys = b->keys[l];
    zero.k = keys.k + first;
    zero.v = keys.v + first;
    zero.d_k = keys.d_k == nullptr ? nullptr : keys.d_k + first;
    zero.d_v = keys.d_v == nullptr ? nullptr : keys.d_v + first;
  }
}

}  // namespace

void chunk_sizes(const Core& core, ChunkSizes* sizes) {
  const ChunkPlan& chunk = core.chunk;
  sizes->batch_keys = core.row_plan.keys;
  sizes->longest_document = 0;
  for (const RowPlan::Document& document : core.row_plan.documents)
    sizes->longest_document =
        std::max<std::int64_t>(sizes->longest_document, document.needed_end - document.begin);
  sizes->keys = chunk.keys;
  sizes->rows = static_cast<std::int64_t>(chunk.rows.size());
  sizes->teachers = static_cast<std::int64_t>(chunk.teachers.size());
  sizes->live.resize(chunk.steps.size());
  sizes->entries.resize(chunk.steps.size());
  for (std::size_t k = 0; k < chunk.steps.size(); ++k) {
    sizes->live[k] = static_cast<std::int64_t>(chunk.steps[k].live.size());
    sizes->entries[k] = static_cast<std::int64_t>(chunk.steps[k].entry_live.size());
  }
}

ChunkSizes largest_chunk(const Core& core, std::int64_t max_rows, std::int64_t chunk_rows) {
  const auto steps = static_cast<std::size_t>(core.dims.K);
  ChunkSizes sizes;
  sizes.batch_keys = sizes.longest_document = max_rows;
  sizes.keys = std::min(max_rows, chunk_rows);
  sizes.rows = sizes.teachers = std::min(max_rows, chunk_rows + core.dims.K - 1);
  sizes.live.assign(steps, sizes.keys);
  sizes.entries.assign(steps, sizes.keys);
  return sizes;
}

StateFeed::Sizes feed_sizes(const Core& core, const ChunkSizes& largest) {
  return {core.dims.A, core.dims.Ht, core.options.states, largest.keys, largest.teachers};
}

std::int64_t lay_out(const Core& core, const ChunkSizes& sizes, bool with_gradients, int threads,
                     Buffers* buffers) {
  Bump bump(buffers->memory);
  lay_out_batch(core.dims, sizes, with_gradients, bump, buffers);
  lay_out_scratch(core, sizes, with_gradients, threads, bump, buffers);
  lay_out_inputs(core, sizes, with_gradients, bump, buffers);
  lay_out_steps(core, sizes, with_gradients, bump, buffers);
  if (buffers->memory != nullptr) link(core.chunk, core.dims, buffers);
  return bump.used();
}

Status take_buffers(std::int64_t max_rows, std::int64_t chunk_rows, bool with_gradients, int threads,
                    Core* core) {
  const auto steps = static_cast<std::size_t>(core->dims.K), layers = static_cast<std::size_t>(core->dims.L);
  Buffers& b = core->buffers;
  b.keys.assign(layers, BatchKeys{});
  for (auto* list : {&b.cos, &b.sin, &b.f_normed, &b.f_inv, &b.xs}) list->assign(steps, nullptr);
  b.at.assign(steps, std::vector<LayerStep>(layers, LayerStep{}));
  const ChunkSizes largest = largest_chunk(*core, max_rows, chunk_rows);
  const FloatArena::Handle all = b.arena.book("step", lay_out(*core, largest, with_gradients, threads, &b));
  EAGLET_RETURN_IF_ERROR(b.arena.allocate(core->device));
  b.memory = b.arena.at(all);
  const auto rows = static_cast<std::size_t>(largest.rows);
  b.loss.assign(steps, std::vector<float>(rows));
  b.best.assign(steps, std::vector<std::int32_t>(rows));
  b.entry_weight.assign(steps, std::vector<float>());
  for (auto& weights : b.entry_weight) weights.reserve(rows);
  b.teacher_best.resize(rows);
  b.teacher_best_full.resize(rows);
  if (core->on_device()) {
    EAGLET_ASSIGN_OR_RETURN(core->feed, StateFeed::open(core->device, feed_sizes(*core, largest)));
  }
  return take_index(largest, core);
}

}  // namespace eaglet::draft_core
