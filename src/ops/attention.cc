#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/gemm.h"
#include "device/threads.h"
#include "ops/device_ops.h"
#include "ops/vector_math.h"

namespace eaglet {
namespace {

// Rows (queries x heads of a group) and keys of a score tile: large enough for the GEMM to run near its peak,
// small enough for the tile to stay in the cache. A longer document takes more tiles, not larger ones.
constexpr std::int64_t kBlockRows = 192, kTileKeys = 4096;

struct Geometry {
  std::int64_t group, head_dim, query_width, key_width, block_queries;
  float scale;
};

Geometry geometry(const AttentionShape& shape) {
  Geometry g;
  g.group = shape.num_heads / shape.num_kv_heads;
  g.head_dim = shape.head_dim;
  g.query_width = shape.num_heads * shape.head_dim;
  g.key_width = shape.num_kv_heads * shape.head_dim;
  g.block_queries = std::max<std::int64_t>(kBlockRows / g.group, 1);
  g.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  return g;
}

// One block of queries against the keys it can see, for one kv head. Block row r = query (r / group), head (r
// % group).
struct Block {
  std::int64_t kv_head = 0;
  std::int64_t query_begin = 0, queries = 0;  // rows of the query array
  std::int64_t key_begin = 0, keys = 0;       // rows of the step-0 arrays
  std::int64_t rows(const Geometry& g) const { return queries * g.group; }
};

struct Scratch {
  float *queries, *scores, *second, *out, *own, *largest, *sum;
};

Scratch carve(const Geometry& g, std::int64_t max_keys, std::int64_t max_own, float* memory) {
  const std::int64_t rows = g.block_queries * g.group, tile = std::min(max_keys, kTileKeys);
  Scratch s;
  s.queries = memory;
  s.out = s.queries + rows * g.head_dim;
  s.largest = s.out + rows * g.head_dim;
  s.sum = s.largest + rows;
  s.own = s.sum + rows;
  s.scores = s.own + rows * std::max<std::int64_t>(max_own, 1);
  s.second = s.scores + rows * tile;
  return s;
}

// Keys [first, first + keys) of a block, counted from its first key.
struct Tile {
  std::int64_t first = 0, keys = 0;
};

template <class Body>
void each_tile(std::int64_t keys, const Body& body) {
  for (std::int64_t first = 0; first < keys; first += kTileKeys)
    body(Tile{first, std::min(kTileKeys, keys - first)});
}

struct KeyRange {
  std::int64_t begin, end;  // relative to the block's first key
};

// The keys of a tile that a query sees, counted from the tile's first; none when end <= begin.
KeyRange visible(const AttentionShape& shape, const AttentionInputs& in, const Block& block, const Tile& tile,
                 std::int64_t query, std::int64_t document_begin) {
  const std::int64_t last = in.key_of_query[query], tile_begin = block.key_begin + tile.first;
  const std::int64_t first =
      shape.window > 0 ? std::max(document_begin, last - shape.window + 1) : document_begin;
  return {std::clamp<std::int64_t>(first - tile_begin, 0, tile.keys),
          std::clamp<std::int64_t>(last + 1 - tile_begin, 0, tile.keys)};
}

Block make_block(const AttentionShape& shape, const AttentionInputs& in, const AttentionSpan& span,
                 std::int64_t kv_head, std::int64_t query_begin, std::int64_t queries) {
  Block block;
  block.kv_head = kv_head;
  block.query_begin = query_begin;
  block.queries = queries;
  const std::int64_t first = in.key_of_query[query_begin], last = in.key_of_query[query_begin + queries - 1];
  block.key_begin = span.key_begin;
  if (shape.window > 0) block.key_begin = std::max<std::int64_t>(span.key_begin, first - shape.window + 1);
  block.keys = last + 1 - block.key_begin;
  return block;
}

// Packs the block's slices of [n, N*D] into [rows, D].
void pack(const Geometry& g, const Block& block, const float* from, float* to) {
  for (std::int64_t i = 0; i < block.queries; ++i)
    std::memcpy(to + i * g.group * g.head_dim,
                from + (block.query_begin + i) * g.query_width + block.kv_head * g.group * g.head_dim,
                static_cast<std::size_t>(g.group * g.head_dim) * sizeof(float));
}

void unpack(const Geometry& g, const Block& block, const float* from, float* to) {
  for (std::int64_t i = 0; i < block.queries; ++i)
    std::memcpy(to + (block.query_begin + i) * g.query_width + block.kv_head * g.group * g.head_dim,
                from + i * g.group * g.head_dim,
                static_cast<std::size_t>(g.group * g.head_dim) * sizeof(float));
}

const float* own_row(const Geometry& g, const AttentionInputs& in, const float* const* arrays,
                     std::int64_t step, std::int64_t query, std::int64_t kv_head) {
  return arrays[step] + in.own_index[step][query] * g.key_width + kv_head * g.head_dim;
}

const float* of_tile(const Geometry& g, const Block& block, const Tile& tile, const float* keys0) {
  return keys0 + (block.key_begin + tile.first) * g.key_width + block.kv_head * g.head_dim;
}
float* of_tile(const Geometry& g, const Block& block, const Tile& tile, float* keys0) {
  return keys0 + (block.key_begin + tile.first) * g.key_width + block.kv_head * g.head_dim;
}

void score_tile(const Geometry& g, const Block& block, const Tile& tile, const float* packed_queries,
                const float* keys0, float* scores) {
  gemm(Transpose::kNo, Transpose::kYes, block.rows(g), tile.keys, g.head_dim, 1.0f, packed_queries,
       g.head_dim, of_tile(g, block, tile, keys0), g.key_width, 0.0f, scores, tile.keys);
}

// Makes room for a larger maximum: what was summed so far shrinks by exp(before - now).
float raise_maximum(const Geometry& g, float candidate, std::int64_t r, const Scratch& s) {
  if (candidate <= s.largest[r]) return s.largest[r];
  const float shrink = std::exp(s.largest[r] - candidate);  // 0 the first time: largest is -infinity
  s.largest[r] = candidate;
  s.sum[r] *= shrink;
  vaxpby(0.0f, s.out + r * g.head_dim, shrink, g.head_dim, s.out + r * g.head_dim);
  return candidate;
}

// Scores of a tile -> exp(score - largest so far), zero where a query sees nothing.
void exponentiate_tile(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                       const Block& block, const Tile& tile, std::int64_t document_begin, const Scratch& s) {
  for (std::int64_t r = 0; r < block.rows(g); ++r) {
    const std::int64_t query = block.query_begin + r / g.group;
    const KeyRange range = visible(shape, in, block, tile, query, document_begin);
    float* row = s.scores + r * tile.keys;
    if (range.end <= range.begin) {
      std::fill(row, row + tile.keys, 0.0f);
      continue;
    }
    const std::int64_t n = range.end - range.begin;
    const float largest = raise_maximum(g, g.scale * vmax(row + range.begin, n), r, s);
    s.sum[r] += vexp_sum(row + range.begin, n, g.scale, largest, row + range.begin);
    std::fill(row, row + range.begin, 0.0f);
    std::fill(row + range.end, row + tile.keys, 0.0f);
  }
}

// The keys that a row made itself at later steps, then the division by the whole sum.
void finish_rows(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                 const Block& block, const Scratch& s, float* log_sum_exp) {
  for (std::int64_t r = 0; r < block.rows(g); ++r) {
    const std::int64_t query = block.query_begin + r / g.group;
    float* out = s.out + r * g.head_dim;
    for (std::int64_t j = 0; j < in.num_own; ++j) {
      const float* key = own_row(g, in, in.own_keys, j, query, block.kv_head);
      const float score = g.scale * vdot(s.queries + r * g.head_dim, key, g.head_dim);
      const float p = std::exp(score - raise_maximum(g, score, r, s));
      s.sum[r] += p;
      vaxpy(p, own_row(g, in, in.own_values, j, query, block.kv_head), g.head_dim, out);
    }
    vaxpby(0.0f, out, 1.0f / s.sum[r], g.head_dim, out);
    log_sum_exp[query * shape.num_heads + block.kv_head * g.group + r % g.group] =
        s.largest[r] + std::log(s.sum[r]);
  }
}

void forward_block(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                   const AttentionSpan& span, const Block& block, const Scratch& s, float* out,
                   float* log_sum_exp) {
  const std::int64_t rows = block.rows(g);
  pack(g, block, in.queries, s.queries);
  std::fill(s.out, s.out + rows * g.head_dim, 0.0f);
  std::fill(s.largest, s.largest + rows, -std::numeric_limits<float>::infinity());
  std::fill(s.sum, s.sum + rows, 0.0f);
  each_tile(block.keys, [&](const Tile& tile) {
    score_tile(g, block, tile, s.queries, in.keys0, s.scores);
    exponentiate_tile(shape, g, in, block, tile, span.key_begin, s);
    gemm(Transpose::kNo, Transpose::kNo, rows, g.head_dim, tile.keys, 1.0f, s.scores, tile.keys,
         of_tile(g, block, tile, in.values0), g.key_width, 1.0f, s.out, g.head_dim);
  });
  finish_rows(shape, g, in, block, s, log_sum_exp);
  unpack(g, block, s.out, out);
}

float lse_of(const AttentionShape& shape, const Geometry& g, const Block& block, std::int64_t r,
             const float* log_sum_exp) {
  const std::int64_t query = block.query_begin + r / g.group;
  return log_sum_exp[query * shape.num_heads + block.kv_head * g.group + r % g.group];
}

// Scores of a tile -> probabilities again, from the stored log_sum_exp.
void probabilities_again(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                         const Block& block, const Tile& tile, std::int64_t document_begin, const Scratch& s,
                         const float* log_sum_exp) {
  for (std::int64_t r = 0; r < block.rows(g); ++r) {
    const KeyRange range = visible(shape, in, block, tile, block.query_begin + r / g.group, document_begin);
    float* row = s.scores + r * tile.keys;
    const std::int64_t begin = std::min(range.begin, range.end);
    vexp_sum(row + begin, range.end - begin, g.scale, lse_of(shape, g, block, r, log_sum_exp), row + begin);
    std::fill(row, row + begin, 0.0f);
    std::fill(row + range.end, row + tile.keys, 0.0f);
  }
}

float* own_gradient(const Geometry& g, const AttentionInputs& in, float* const* arrays, std::int64_t step,
                    std::int64_t query, std::int64_t kv_head) {
  return arrays[step] + in.own_index[step][query] * g.key_width + kv_head * g.head_dim;
}

// Everything that flows through the own keys; delta = sum_j p_j dp_j = <out, d_out>.
void backward_own(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                  const Block& block, const Scratch& s, const float* d_out, const float* delta,
                  const float* log_sum_exp, const AttentionGradients& gradients, float* d_queries) {
  for (std::int64_t r = 0; r < block.rows(g); ++r) {
    const std::int64_t query = block.query_begin + r / g.group;
    const float lse = lse_of(shape, g, block, r, log_sum_exp);
    const float *q = s.queries + r * g.head_dim, *dor = d_out + r * g.head_dim;
    for (std::int64_t j = 0; j < in.num_own; ++j) {
      const float* key = own_row(g, in, in.own_keys, j, query, block.kv_head);
      const float p = std::exp(g.scale * vdot(q, key, g.head_dim) - lse);
      const float dp = vdot(dor, own_row(g, in, in.own_values, j, query, block.kv_head), g.head_dim);
      const float ds = g.scale * p * (dp - delta[r]);
      vaxpy(p, dor, g.head_dim, own_gradient(g, in, gradients.d_own_values, j, query, block.kv_head));
      vaxpy(ds, q, g.head_dim, own_gradient(g, in, gradients.d_own_keys, j, query, block.kv_head));
      vaxpy(ds, key, g.head_dim, d_queries + r * g.head_dim);
    }
  }
}

// dV0 += P^T dO, dP = dO V0^T, dS = scale * P (dP - delta), dQ += dS K0, dK0 += dS^T Q
void backward_tile(const Geometry& g, const AttentionInputs& in, const Block& block, const Tile& tile,
                   const Scratch& s, const float* packed_d_out, const float* delta,
                   const AttentionGradients& gradients) {
  const std::int64_t rows = block.rows(g);
  gemm(Transpose::kYes, Transpose::kNo, tile.keys, g.head_dim, rows, 1.0f, s.scores, tile.keys, packed_d_out,
       g.head_dim, 1.0f, of_tile(g, block, tile, gradients.d_values0), g.key_width);
  gemm(Transpose::kNo, Transpose::kYes, rows, tile.keys, g.head_dim, 1.0f, packed_d_out, g.head_dim,
       of_tile(g, block, tile, in.values0), g.key_width, 0.0f, s.second, tile.keys);
  for (std::int64_t r = 0; r < rows; ++r)
    vsoftmax_backward(s.scores + r * tile.keys, g.scale, delta[r], tile.keys, s.second + r * tile.keys);
  gemm(Transpose::kNo, Transpose::kNo, rows, g.head_dim, tile.keys, 1.0f, s.second, tile.keys,
       of_tile(g, block, tile, in.keys0), g.key_width, 1.0f, s.out, g.head_dim);
  gemm(Transpose::kYes, Transpose::kNo, tile.keys, g.head_dim, rows, 1.0f, s.second, tile.keys, s.queries,
       g.head_dim, 1.0f, of_tile(g, block, tile, gradients.d_keys0), g.key_width);
}

void backward_block(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                    const AttentionSpan& span, const Block& block, const Scratch& s, float* packed_d_out,
                    float* delta, const float* out, const float* log_sum_exp,
                    const AttentionGradients& gradients) {
  const std::int64_t rows = block.rows(g);
  pack(g, block, out, s.out);
  pack(g, block, gradients.d_out, packed_d_out);
  for (std::int64_t r = 0; r < rows; ++r)
    delta[r] = vdot(s.out + r * g.head_dim, packed_d_out + r * g.head_dim, g.head_dim);
  pack(g, block, in.queries, s.queries);
  std::fill(s.out, s.out + rows * g.head_dim, 0.0f);  // from here on: the gradient of the queries
  backward_own(shape, g, in, block, s, packed_d_out, delta, log_sum_exp, gradients, s.out);
  each_tile(block.keys, [&](const Tile& tile) {
    score_tile(g, block, tile, s.queries, in.keys0, s.scores);
    probabilities_again(shape, g, in, block, tile, span.key_begin, s, log_sum_exp);
    backward_tile(g, in, block, tile, s, packed_d_out, delta, gradients);
  });
  unpack(g, block, s.out, gradients.d_queries);
}

std::int64_t longest_span(const std::vector<AttentionSpan>& spans) {
  std::int64_t longest = 1;
  for (const AttentionSpan& span : spans)
    longest = std::max<std::int64_t>(longest, span.key_end - span.key_begin);
  return longest;
}

}  // namespace

std::int64_t attention_scratch_floats(const AttentionShape& shape, std::int64_t max_keys,
                                      std::int64_t max_own) {
  const std::int64_t rows = std::max(kBlockRows, shape.num_heads / shape.num_kv_heads);
  const std::int64_t tile = std::min(max_keys, kTileKeys);
  return rows * (3 * shape.head_dim + std::max<std::int64_t>(max_own, 1) + 3) + 2 * rows * tile;
}

void attention(const AttentionShape& shape, const AttentionInputs& in, float* out, float* log_sum_exp,
               float* scratch, std::int64_t scratch_floats_per_thread) {
  if (const DeviceOps* device = device_ops(out))
    return device->attention(shape, in, out, log_sum_exp, scratch, scratch_floats_per_thread);
  const std::int64_t max_keys = longest_span(*in.spans);
  const Geometry g = geometry(shape);
  const auto spans = static_cast<std::int64_t>(in.spans->size());
  parallel_items(spans * shape.num_kv_heads, [&](std::int64_t item, int thread) {
    const AttentionSpan& span = (*in.spans)[static_cast<std::size_t>(item / shape.num_kv_heads)];
    const Scratch s = carve(g, max_keys, in.num_own, scratch + thread * scratch_floats_per_thread);
    for (std::int64_t q = span.query_begin; q < span.query_end; q += g.block_queries) {
      const std::int64_t queries = std::min<std::int64_t>(g.block_queries, span.query_end - q);
      const Block block = make_block(shape, in, span, item % shape.num_kv_heads, q, queries);
      forward_block(shape, g, in, span, block, s, out, log_sum_exp);
    }
  });
}

void attention_backward(const AttentionShape& shape, const AttentionInputs& in, const float* out,
                        const float* log_sum_exp, const AttentionGradients& gradients, float* scratch,
                        std::int64_t scratch_floats_per_thread) {
  if (const DeviceOps* device = device_ops(gradients.d_queries))
    return device->attention_backward(shape, in, out, log_sum_exp, gradients, scratch,
                                      scratch_floats_per_thread);
  const std::int64_t max_keys = longest_span(*in.spans);
  const Geometry g = geometry(shape);
  const std::int64_t block_rows = g.block_queries * g.group;
  const auto spans = static_cast<std::int64_t>(in.spans->size());
  parallel_items(spans * shape.num_kv_heads, [&](std::int64_t item, int thread) {
    const AttentionSpan& span = (*in.spans)[static_cast<std::size_t>(item / shape.num_kv_heads)];
    float* packed_d_out = scratch + thread * scratch_floats_per_thread;
    float* delta = packed_d_out + block_rows * g.head_dim;
    const Scratch s = carve(g, max_keys, in.num_own, delta + block_rows);
    for (std::int64_t q = span.query_begin; q < span.query_end; q += g.block_queries) {
      const std::int64_t queries = std::min<std::int64_t>(g.block_queries, span.query_end - q);
      const Block block = make_block(shape, in, span, item % shape.num_kv_heads, q, queries);
      backward_block(shape, g, in, span, block, s, packed_d_out, delta, out, log_sum_exp, gradients);
    }
  });
}

}  // namespace eaglet
