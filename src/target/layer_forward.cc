#include "target/layer_forward.h"

#include <algorithm>
#include <cmath>

#include "device/threads.h"
#include "ops/bias.h"
#include "ops/joined_rows.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "target/kv_cache.h"

namespace eaglet {
namespace {

// A norm of every head by itself (Qwen3).
void norm_heads(std::int64_t n, const std::vector<float>& weight, std::int64_t width, double eps, float* x,
                LayerScratch* scratch) {
  if (weight.empty()) return;
  rms_norm(n, width, x, width, weight.data(), eps, x, width, room(&scratch->inv, n));
}

const float* or_none(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

// y [n, out] = x W^T (+ y when `accumulate`), plus the bias where there is one.
void multiply(const LinearWeight& w, std::int64_t n, std::int64_t out, const float* x,
              const std::vector<float>& bias, bool accumulate, float* y) {
  w.forward(n, x, accumulate, y);
  add_bias(n, out, or_none(bias), y);
}

// Queries, keys and values of normed rows.
void project(const LayerTensors& l, const LayerProducts& p, std::int64_t n, std::int64_t q_width,
             std::int64_t kv_width, const float* normed, LayerScratch* s) {
  float *q = room(&s->q, n * q_width), *k = room(&s->k, n * kv_width), *v = room(&s->v, n * kv_width);
  if (p.qkv == nullptr) {
    multiply(*p.q, n, q_width, normed, l.q_bias, false, q);
    multiply(*p.k, n, kv_width, normed, l.k_bias, false, k);
    multiply(*p.v, n, kv_width, normed, l.v_bias, false, v);
    return;
  }
  const std::int64_t all = q_width + 2 * kv_width;
  float* joined = room(&s->joined, n * all);
  p.qkv->forward(n, normed, false, joined);
  take_joined(n, q_width, all, joined, or_none(l.q_bias), q);
  take_joined(n, kv_width, all, joined + q_width, or_none(l.k_bias), k);
  take_joined(n, kv_width, all, joined + q_width + kv_width, or_none(l.v_bias), v);
}

// gate and up of rows z.
void project_mlp(const MlpProducts& mlp, const MlpBiases& biases, std::int64_t n, const float* z, float* gate,
                 float* up, LayerScratch* s) {
  if (mlp.gate_up == nullptr) {
    multiply(*mlp.gate, n, mlp.width, z, biases.gate, false, gate);
    multiply(*mlp.up, n, mlp.width, z, biases.up, false, up);
    return;
  }
  float* joined = room(&s->joined, n * 2 * mlp.width);
  mlp.gate_up->forward(n, z, false, joined);
  take_joined(n, mlp.width, 2 * mlp.width, joined, or_none(biases.gate), gate);
  take_joined(n, mlp.width, 2 * mlp.width, joined + mlp.width, or_none(biases.up), up);
}

}  // namespace

TargetRope target_rope(const TargetConfig& c) {
  TargetRope rope;
  const bool latent = c.latent.kv_rank > 0;
  rope.table = rope_table(c.rope, latent ? c.latent.rope_dim : c.head_dim, c.max_position_embeddings);
  // DeepSeek: the softmax's scale grows with yarn's temperature, squared.
  if (latent && c.rope.type == "yarn" && c.rope.mscale_all_dim != 0) {
    const double m = c.rope.factor <= 1 ? 1 : 0.1 * c.rope.mscale_all_dim * std::log(c.rope.factor) + 1;
    rope.latent_scale = m * m;
  }
  return rope;
}

void chunk_rope_angles(const RopeTable& table, const DocumentChunk& chunk, std::int64_t half,
                       LayerScratch* s) {
  rope_angles(chunk.rows, chunk.positions.data(), half, table.inv_freq.data(), table.attention_scaling,
              room(&s->cos, chunk.rows * half), room(&s->sin, chunk.rows * half));
}

void attend_within_documents(const AttentionShape& shape, const DocumentChunk& chunk, LayerScratch* s) {
  AttentionInputs in;
  in.num_queries = chunk.rows;
  in.spans = &chunk.spans;
  in.key_of_query = chunk.own_row.data();
  in.queries = s->q.data();
  in.keys0 = s->k.data();
  in.values0 = s->v.data();
  const std::int64_t floats = attention_scratch_floats(shape, chunk.longest, 0);
  attention(shape, in, room(&s->attended, chunk.rows * shape.num_heads * shape.head_dim),
            room(&s->log_sum_exp, chunk.rows * shape.num_heads), room(&s->attention, threads_here() * floats),
            floats);
}

void attend(const AttentionShape& shape, const DocumentChunk& chunk, LayerScratch* s) {
  if (chunk.caches != nullptr)
    attend_over_caches(shape, chunk, s);
  else
    attend_within_documents(shape, chunk, s);
}

void attention_layer(const TargetConfig& c, const TargetRope& rope, const LayerTensors& l,
                     const LayerProducts& p, std::int64_t window, const DocumentChunk& chunk, float* x,
                     LayerScratch* s) {
  const std::int64_t n = chunk.rows, q_width = c.num_heads * c.head_dim,
                     kv_width = c.num_kv_heads * c.head_dim, half = c.head_dim / 2;
  float* normed = room(&s->normed, n * c.hidden);
  rms_norm(n, c.hidden, x, c.hidden, l.input_norm.data(), c.rms_norm_eps, normed, c.hidden, room(&s->inv, n));
  project(l, p, n, q_width, kv_width, normed, s);
  float *q = s->q.data(), *k = s->k.data();
  norm_heads(n * c.num_heads, l.q_norm, c.head_dim, c.rms_norm_eps, q, s);
  norm_heads(n * c.num_kv_heads, l.k_norm, c.head_dim, c.rms_norm_eps, k, s);
  chunk_rope_angles(rope.table, chunk, half, s);
  rope_rotate(n, c.num_heads, half, s->cos.data(), s->sin.data(), q);
  rope_rotate(n, c.num_kv_heads, half, s->cos.data(), s->sin.data(), k);
  attend({c.num_heads, c.num_kv_heads, c.head_dim, window}, chunk, s);
  multiply(*p.o, n, c.hidden, s->attended.data(), l.o_bias, true, x);
}

void add_mlp(const MlpProducts& mlp, const MlpBiases& biases, std::int64_t n, std::int64_t hidden,
             const float* z, float* y, LayerScratch* s) {
  float *gate = room(&s->gate, n * mlp.width), *up = room(&s->up, n * mlp.width);
  project_mlp(mlp, biases, n, z, gate, up, s);
  swiglu(n, mlp.width, gate, up, gate);
  multiply(*mlp.down, n, hidden, gate, biases.down, true, y);
}

void mlp_layer(const TargetConfig& c, const LayerTensors& l, const LayerProducts& p, std::int64_t n, float* x,
               LayerScratch* s) {
  float* normed = room(&s->normed, n * c.hidden);
  rms_norm(n, c.hidden, x, c.hidden, l.post_norm.data(), c.rms_norm_eps, normed, c.hidden, room(&s->inv, n));
  add_mlp(p.mlp, l.mlp_biases, n, c.hidden, normed, x, s);
}

}  // namespace eaglet
