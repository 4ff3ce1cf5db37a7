#include <algorithm>
#include <cmath>

#include "device/threads.h"
#include "ops/joined_rows.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "target/layer_forward.h"

namespace eaglet {
namespace {

// The norms inside latent attention keep the library's own default, whatever rms_norm_eps says
// (transformers, modeling_deepseek_v3: DeepseekV3RMSNorm(config.q_lora_rank)).
constexpr double kInnerEps = 1e-6;

// Takes the rope parts of rows [n, heads, distance] from `offset` on into [n, heads, 2*half], halves apart
// where the weights have pairs side by side, and rotates them.
void rotated_parts(std::int64_t n, std::int64_t heads, std::int64_t distance, std::int64_t row_distance,
                   std::int64_t offset, std::int64_t half, bool interleaved, const float* cos,
                   const float* sin, const float* from, float* parts) {
  parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t h = 0; h < heads; ++h) {
        const float* x = from + row * row_distance + h * distance + offset;
        float* y = parts + (row * heads + h) * 2 * half;
        for (std::int64_t i = 0; i < half; ++i) {
          y[i] = interleaved ? x[2 * i] : x[i];
          y[half + i] = interleaved ? x[2 * i + 1] : x[half + i];
        }
      }
  });
  rope_rotate(n, heads, half, cos, sin, parts);
}

}  // namespace

void latent_attention_layer(const TargetConfig& c, const TargetRope& rope, const LayerTensors& l,
                            const LayerProducts& p, const DocumentChunk& chunk, float* x, LayerScratch* s) {
  const LatentConfig& m = c.latent;
  const std::int64_t n = chunk.rows, heads = c.num_heads, key = m.nope_dim + m.rope_dim,
                     half = m.rope_dim / 2,
                     wide = std::max(key, m.value_dim);  // keys and values share one width: zeros fill it up
  float* normed = room(&s->normed, n * c.hidden);
  float* inv = room(&s->inv, n);
  rms_norm(n, c.hidden, x, c.hidden, l.input_norm.data(), c.rms_norm_eps, normed, c.hidden, inv);
  float* raw_q = room(&s->gate, n * heads * std::max(key, m.value_dim));
  if (m.q_rank > 0) {
    float* narrow = room(&s->compressed, n * m.q_rank);
    p.q_a->forward(n, normed, false, narrow);
    rms_norm(n, m.q_rank, narrow, m.q_rank, l.q_a_norm.data(), kInnerEps, narrow, m.q_rank, inv);
    p.q_b->forward(n, narrow, false, raw_q);
  } else {
    p.q->forward(n, normed, false, raw_q);
  }
  const std::int64_t latent_width = m.kv_rank + m.rope_dim, decoded = m.nope_dim + m.value_dim;
  float *latent = room(&s->latent, n * latent_width), *narrow = room(&s->compressed, n * m.kv_rank),
        *kv = room(&s->up, n * heads * decoded);
  p.kv_a->forward(n, normed, false, latent);
  rms_norm(n, m.kv_rank, latent, latent_width, l.kv_a_norm.data(), kInnerEps, narrow, m.kv_rank, inv);
  p.kv_b->forward(n, narrow, false, kv);

  chunk_rope_angles(rope.table, chunk, half, s);
  const float *cos = s->cos.data(), *sin = s->sin.data();
  float *q_parts = room(&s->head_parts, n * (heads + 1) * m.rope_dim),
        *k_parts = q_parts + n * heads * m.rope_dim;
  rotated_parts(n, heads, key, heads * key, m.nope_dim, half, m.rope_interleaved, cos, sin, raw_q, q_parts);
  rotated_parts(n, 1, latent_width, latent_width, m.kv_rank, half, m.rope_interleaved, cos, sin, latent,
                k_parts);

  // attention() divides by the root of `wide`.
  const auto scale =
      static_cast<float>(rope.latent_scale * std::sqrt(static_cast<double>(wide) / static_cast<double>(key)));
  const std::int64_t width = heads * wide;
  float *q = room(&s->q, n * width), *k = room(&s->k, n * width), *v = room(&s->v, n * width);
  parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t at = (row * heads + h) * wide;
        const float *from_q = raw_q + (row * heads + h) * key, *from_kv = kv + (row * heads + h) * decoded,
                    *rotated = q_parts + (row * heads + h) * m.rope_dim;
        std::fill_n(q + at, wide, 0.0f), std::fill_n(k + at, wide, 0.0f), std::fill_n(v + at, wide, 0.0f);
        for (std::int64_t i = 0; i < m.nope_dim; ++i) q[at + i] = scale * from_q[i];
        for (std::int64_t i = 0; i < m.rope_dim; ++i) q[at + m.nope_dim + i] = scale * rotated[i];
        std::copy_n(from_kv, m.nope_dim, k + at);
        std::copy_n(k_parts + row * m.rope_dim, m.rope_dim, k + at + m.nope_dim);
        std::copy_n(from_kv + m.nope_dim, m.value_dim, v + at);
      }
  });
  attend({heads, heads, wide, 0}, chunk, s);
  const float* attended = s->attended.data();
  parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {  // the filling goes; raw_q is free by now
    for (std::int64_t i = begin * heads; i < end * heads; ++i)
      std::copy_n(attended + i * wide, m.value_dim, raw_q + i * m.value_dim);
  });
  p.o->forward(n, raw_q, true, x);
}

}  // namespace eaglet
