#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/gemm.h"
#include "device/threads.h"
#include "ops/vector_math.h"

namespace eaglet {
namespace {

// Rows (queries x heads of a group) of a score block: large enough for the GEMM to run near its peak, small
// enough for the block (rows x keys) to stay in the cache; at very long documents the block shrinks to keep
// scratch bounded.
constexpr std::int64_t kBlockRows = 192;
constexpr std::int64_t kMaxScores = 1 << 20;

struct Geometry {
  std::int64_t group, head_dim, query_width, key_width, block_queries;
  float scale;
};

Geometry geometry(const AttentionShape& shape, std::int64_t max_keys) {
  Geometry g;
  g.group = shape.num_heads / shape.num_kv_heads;
  g.head_dim = shape.head_dim;
  g.query_width = shape.num_heads * shape.head_dim;
  g.key_width = shape.num_kv_heads * shape.head_dim;
  const std::int64_t rows =
      std::min(kBlockRows, std::max<std::int64_t>(kMaxScores / std::max<std::int64_t>(max_keys, 1), 1));
  g.block_queries = std::max<std::int64_t>(rows / g.group, 1);
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
  float *queries, *scores, *second, *out, *own;
};

Scratch carve(const Geometry& g, std::int64_t max_keys, std::int64_t max_own, float* memory) {
  const std::int64_t rows = g.block_queries * g.group;
  Scratch s;
  s.queries = memory;
  s.out = s.queries + rows * g.head_dim;
  s.own = s.out + rows * g.head_dim;
  s.scores = s.own + rows * std::max<std::int64_t>(max_own, 1);
  s.second = s.scores + rows * max_keys;
  return s;
}

struct KeyRange {
  std::int64_t begin, end;  // relative to the block's first key
};

KeyRange visible(const AttentionShape& shape, const AttentionInputs& in, const Block& block,
                 std::int64_t query, std::int64_t document_begin) {
  const std::int64_t last = in.key_of_query[query];
  const std::int64_t first =
      shape.window > 0 ? std::max(document_begin, last - shape.window + 1) : document_begin;
  return {first - block.key_begin, last + 1 - block.key_begin};
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

void score_block(const Geometry& g, const Block& block, const float* packed_queries, const float* keys0,
                 float* scores) {
  gemm(Transpose::kNo, Transpose::kYes, block.rows(g), block.keys, g.head_dim, 1.0f, packed_queries,
       g.head_dim, keys0 + block.key_begin * g.key_width + block.kv_head * g.head_dim, g.key_width, 0.0f,
       scores, block.keys);
}

// Scores -> probabilities in place (zero outside the visible range), own probabilities in s.own; writes
// log_sum_exp.
void softmax_block(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                   const Block& block, std::int64_t document_begin, const Scratch& s, float* log_sum_exp) {
  for (std::int64_t r = 0; r < block.rows(g); ++r) {
    const std::int64_t query = block.query_begin + r / g.group;
    const KeyRange range = visible(shape, in, block, query, document_begin);
    float* row = s.scores + r * block.keys;
    float* own = s.own + r * in.num_own;
    const float* q = s.queries + r * g.head_dim;
    float best = g.scale * vmax(row + range.begin, range.end - range.begin);
    for (std::int64_t j = 0; j < in.num_own; ++j) {
      own[j] = g.scale * vdot(q, own_row(g, in, in.own_keys, j, query, block.kv_head), g.head_dim);
      best = std::max(best, own[j]);
    }
    float sum = vexp_sum(row + range.begin, range.end - range.begin, g.scale, best, row + range.begin);
    for (std::int64_t j = 0; j < in.num_own; ++j) sum += own[j] = std::exp(own[j] - best);
    const float inverse = 1.0f / sum;
    std::fill(row, row + range.begin, 0.0f);
    vaxpby(0.0f, row + range.begin, inverse, range.end - range.begin, row + range.begin);
    std::fill(row + range.end, row + block.keys, 0.0f);
    for (std::int64_t j = 0; j < in.num_own; ++j) own[j] *= inverse;
    log_sum_exp[query * shape.num_heads + block.kv_head * g.group + r % g.group] = best + std::log(sum);
  }
}

void add_own_values(const Geometry& g, const AttentionInputs& in, const Block& block, const Scratch& s) {
  for (std::int64_t r = 0; r < block.rows(g); ++r)
    for (std::int64_t j = 0; j < in.num_own; ++j)
      vaxpy(s.own[r * in.num_own + j],
            own_row(g, in, in.own_values, j, block.query_begin + r / g.group, block.kv_head), g.head_dim,
            s.out + r * g.head_dim);
}

void forward_block(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                   const AttentionSpan& span, const Block& block, const Scratch& s, float* out,
                   float* log_sum_exp) {
  pack(g, block, in.queries, s.queries);
  score_block(g, block, s.queries, in.keys0, s.scores);
  softmax_block(shape, g, in, block, span.key_begin, s, log_sum_exp);
  gemm(Transpose::kNo, Transpose::kNo, block.rows(g), g.head_dim, block.keys, 1.0f, s.scores, block.keys,
       in.values0 + block.key_begin * g.key_width + block.kv_head * g.head_dim, g.key_width, 0.0f, s.out,
       g.head_dim);
  add_own_values(g, in, block, s);
  unpack(g, block, s.out, out);
}

// Scores -> probabilities again, from the stored log_sum_exp.
void probabilities_again(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                         const Block& block, std::int64_t document_begin, const Scratch& s,
                         const float* log_sum_exp) {
  for (std::int64_t r = 0; r < block.rows(g); ++r) {
    const std::int64_t query = block.query_begin + r / g.group;
    const KeyRange range = visible(shape, in, block, query, document_begin);
    float* row = s.scores + r * block.keys;
    const float lse = log_sum_exp[query * shape.num_heads + block.kv_head * g.group + r % g.group];
    vexp_sum(row + range.begin, range.end - range.begin, g.scale, lse, row + range.begin);
    std::fill(row, row + range.begin, 0.0f);
    std::fill(row + range.end, row + block.keys, 0.0f);
    for (std::int64_t j = 0; j < in.num_own; ++j) {
      const float* key = own_row(g, in, in.own_keys, j, query, block.kv_head);
      s.own[r * in.num_own + j] = std::exp(g.scale * vdot(s.queries + r * g.head_dim, key, g.head_dim) - lse);
    }
  }
}

float* own_gradient(const Geometry& g, const AttentionInputs& in, float* const* arrays, std::int64_t step,
                    std::int64_t query, std::int64_t kv_head) {
  return arrays[step] + in.own_index[step][query] * g.key_width + kv_head * g.head_dim;
}

// delta = sum_j p_j dp_j = <out, d_out>; then dS, and everything that flows through the own keys.
void backward_rows(const Geometry& g, const AttentionInputs& in, const Block& block, const Scratch& s,
                   const float* d_out, const float* delta, const AttentionGradients& gradients,
                   float* d_queries) {
  for (std::int64_t r = 0; r < block.rows(g); ++r) {
    const std::int64_t query = block.query_begin + r / g.group;
    vsoftmax_backward(s.scores + r * block.keys, g.scale, delta[r], block.keys, s.second + r * block.keys);
    for (std::int64_t j = 0; j < in.num_own; ++j) {
      const float p = s.own[r * in.num_own + j];
      const float* dor = d_out + r * g.head_dim;
      const float dp = vdot(dor, own_row(g, in, in.own_values, j, query, block.kv_head), g.head_dim);
      const float ds = g.scale * p * (dp - delta[r]);
      vaxpy(p, dor, g.head_dim, own_gradient(g, in, gradients.d_own_values, j, query, block.kv_head));
      vaxpy(ds, s.queries + r * g.head_dim, g.head_dim,
            own_gradient(g, in, gradients.d_own_keys, j, query, block.kv_head));
      vaxpy(ds, own_row(g, in, in.own_keys, j, query, block.kv_head), g.head_dim, d_queries + r * g.head_dim);
    }
  }
}

void backward_block(const AttentionShape& shape, const Geometry& g, const AttentionInputs& in,
                    const AttentionSpan& span, const Block& block, const Scratch& s, float* packed_d_out,
                    float* delta, const float* out, const float* log_sum_exp,
                    const AttentionGradients& gradients) {
  const std::int64_t rows = block.rows(g);
  const std::int64_t key_offset = block.key_begin * g.key_width + block.kv_head * g.head_dim;
  pack(g, block, out, s.out);
  pack(g, block, gradients.d_out, packed_d_out);
  for (std::int64_t r = 0; r < rows; ++r)
    delta[r] = vdot(s.out + r * g.head_dim, packed_d_out + r * g.head_dim, g.head_dim);
  pack(g, block, in.queries, s.queries);
  score_block(g, block, s.queries, in.keys0, s.scores);
  probabilities_again(shape, g, in, block, span.key_begin, s, log_sum_exp);
  // dV0 += P^T dO, dP = dO V0^T
  gemm(Transpose::kYes, Transpose::kNo, block.keys, g.head_dim, rows, 1.0f, s.scores, block.keys,
       packed_d_out, g.head_dim, 1.0f, gradients.d_values0 + key_offset, g.key_width);
  gemm(Transpose::kNo, Transpose::kYes, rows, block.keys, g.head_dim, 1.0f, packed_d_out, g.head_dim,
       in.values0 + key_offset, g.key_width, 0.0f, s.second, block.keys);
  std::fill(s.out, s.out + rows * g.head_dim, 0.0f);  // from here on: the gradient of the queries
  backward_rows(g, in, block, s, packed_d_out, delta, gradients, s.out);
  gemm(Transpose::kNo, Transpose::kNo, rows, g.head_dim, block.keys, 1.0f, s.second, block.keys,
       in.keys0 + key_offset, g.key_width, 1.0f, s.out, g.head_dim);
  gemm(Transpose::kYes, Transpose::kNo, block.keys, g.head_dim, rows, 1.0f, s.second, block.keys, s.queries,
       g.head_dim, 1.0f, gradients.d_keys0 + key_offset, g.key_width);
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
  // The block shrinks when keys grow, so the largest need is not always at max_keys: rows * keys <=
  // kMaxScores + one row.
  const std::int64_t group = shape.num_heads / shape.num_kv_heads;
  const std::int64_t rows = std::max(kBlockRows, group);
  const std::int64_t scores = std::max(std::min(rows * max_keys, kMaxScores), group * max_keys);
  return rows * (3 * shape.head_dim + std::max<std::int64_t>(max_own, 1) + 1) + 2 * scores;
}

void attention(const AttentionShape& shape, const AttentionInputs& in, float* out, float* log_sum_exp,
               float* scratch, std::int64_t scratch_floats_per_thread) {
  const std::int64_t max_keys = longest_span(*in.spans);
  const Geometry g = geometry(shape, max_keys);
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
  const std::int64_t max_keys = longest_span(*in.spans);
  const Geometry g = geometry(shape, max_keys);
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
