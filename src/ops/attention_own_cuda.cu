#include <algorithm>
#include <cmath>
#include <vector>

#include "device/cuda_tensor_core.h"
#include "ops/attention_cuda.h"

namespace eaglet::cuda {
namespace {

__device__ float as_used(bool rounded, float value) {
  return rounded ? low_of(pack_bf16(value, 0.0f)) : value;
}

constexpr int kEach = static_cast<int>(kMostHeadDim) / kWarp;  // columns of a lane

// A warp a head, a block the heads of one query and kv head, which read the same own keys at the same time.
// Each own key is one more column of the row's softmax, whose sum so far is 1 at log_sum_exp.
__global__ void merge_own(Call c, OwnKeys own, float* out, float* log_sum_exp) {
  const std::int64_t query = blockIdx.x, kv_head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t member = threadIdx.x / kWarp; member < c.group; member += blockDim.x / kWarp) {
    const std::int64_t at = c.at(query * c.group + member, kv_head), base = at * c.head_dim;
    float q[kEach], sum_of[kEach];
    for (int i = 0; i < kEach; ++i) {
      const int d = lane + kWarp * i;
      q[i] = d < c.head_dim ? as_used(true, c.queries[base + d]) : 0.0f;
      sum_of[i] = d < c.head_dim ? out[base + d] : 0.0f;
    }
    float largest = log_sum_exp[at], sum = 1;
    for (int j = 0; j < own.count; ++j) {
      const std::int64_t at_own = (own.index[j][query] * c.kv_heads + kv_head) * c.head_dim;
      float part = 0;
      for (int i = 0; i < kEach; ++i)
        if (lane + kWarp * i < c.head_dim) part += q[i] * own.keys[j][at_own + lane + kWarp * i];
      const float score = c.scale * warp_sum(part), top = fmaxf(largest, score);
      const float shrink = expf(largest - top), p = expf(score - top);
      largest = top;
      sum = sum * shrink + p;
      for (int i = 0; i < kEach; ++i)
        if (lane + kWarp * i < c.head_dim)
          sum_of[i] = sum_of[i] * shrink + p * own.values[j][at_own + lane + kWarp * i];
    }
    for (int i = 0; i < kEach; ++i)
      if (lane + kWarp * i < c.head_dim) out[base + lane + kWarp * i] = sum_of[i] / sum;
    if (lane == 0) log_sum_exp[at] = largest + logf(sum);
  }
}

// What flows through own keys: a warp has one query of one kv head and all heads of its group, so nothing
// races; d_queries is added to. Grid: queries x kv heads.
__global__ void own_gradients(Call c, Backward b, OwnKeys own, OwnGradients to, bool rounded,
                              float* d_queries) {
  const std::int64_t query = blockIdx.x, kv_head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x);
  for (int j = 0; j < own.count; ++j) {
    const std::int64_t at_own = (own.index[j][query] * c.kv_heads + kv_head) * c.head_dim;
    float d_key[kEach], d_value[kEach];
    for (int i = 0; i < kEach; ++i) d_key[i] = d_value[i] = 0;
    for (std::int64_t member = 0; member < c.group; ++member) {
      const std::int64_t at = c.at(query * c.group + member, kv_head), base = at * c.head_dim;
      float score = 0, dp = 0;
      for (int d = lane; d < c.head_dim; d += kWarp) {
        score += as_used(rounded, c.queries[base + d]) * own.keys[j][at_own + d];
        dp += as_used(rounded, b.d_out[base + d]) * own.values[j][at_own + d];
      }
      const float p = expf(c.scale * warp_sum(score) - b.log_sum_exp[at]);
      const float ds = c.scale * p * (warp_sum(dp) - b.delta[at]);
      for (int i = 0; i < kEach; ++i) {
        const int d = lane + kWarp * i;
        if (d >= c.head_dim) break;
        d_value[i] += p * as_used(rounded, b.d_out[base + d]);
        d_key[i] += ds * as_used(rounded, c.queries[base + d]);
        d_queries[base + d] += ds * own.keys[j][at_own + d];
      }
    }
    for (int i = 0; i < kEach; ++i) {
      const int d = lane + kWarp * i;
      if (d >= c.head_dim) break;
      to.keys[j][at_own + d] += d_key[i];
      to.values[j][at_own + d] += d_value[i];
    }
  }
}

}  // namespace

Call make_call(const AttentionShape& shape, const AttentionInputs& in, std::int32_t* first_key) {
  static std::vector<std::int32_t> first;  // its memory stays
  first.assign(static_cast<std::size_t>(in.num_queries), 0);
  for (const AttentionSpan& span : *in.spans)
    std::fill(first.begin() + span.query_begin, first.begin() + span.query_end, span.key_begin);
  copy_in(first_key, first.data(), first.size() * sizeof(std::int32_t));
  Call c;
  c.n = in.num_queries;
  c.group = shape.num_heads / shape.num_kv_heads;
  c.kv_heads = shape.num_kv_heads;
  c.window = shape.window;
  c.head_dim = static_cast<int>(shape.head_dim);
  c.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  c.first_key = first_key;
  c.key_of_query = in.key_of_query;
  c.queries = in.queries;
  c.keys = in.keys0;
  c.values = in.values0;
  return c;
}

OwnKeys own_keys_of(const AttentionInputs& in) {
  OwnKeys own = {};
  own.count = static_cast<int>(in.num_own);
  for (std::int64_t j = 0; j < in.num_own; ++j) {
    own.keys[j] = in.own_keys[j];
    own.values[j] = in.own_values[j];
    own.index[j] = in.own_index[j];
  }
  return own;
}

KeyRange all_keys(const AttentionInputs& in) {
  KeyRange all{in.spans->front().key_begin, in.spans->front().key_end};
  for (const AttentionSpan& span : *in.spans) {
    all.begin = std::min<std::int64_t>(all.begin, span.key_begin);
    all.end = std::max<std::int64_t>(all.end, span.key_end);
  }
  return all;
}

void merge_own_keys(const Call& c, const AttentionInputs& in, float* out, float* log_sum_exp) {
  if (in.num_own == 0) return;
  constexpr std::int64_t kMostWarps = 8;
  launch("attention: own keys", merge_own,
         dim3(static_cast<unsigned>(in.num_queries), static_cast<unsigned>(c.kv_heads)),
         dim3(static_cast<unsigned>(std::min(c.group, kMostWarps)) * kWarp), c, own_keys_of(in), out,
         log_sum_exp);
}

void own_key_gradients(const Call& c, const Backward& b, const AttentionInputs& in,
                       const AttentionGradients& gradients, bool rounded) {
  if (in.num_own == 0) return;
  OwnGradients to = {};
  for (std::int64_t j = 0; j < in.num_own; ++j) {
    to.keys[j] = gradients.d_own_keys[j];
    to.values[j] = gradients.d_own_values[j];
  }
  launch("attention_backward: own keys", own_gradients,
         dim3(static_cast<unsigned>(in.num_queries), static_cast<unsigned>(c.kv_heads)), dim3(kWarp), c, b,
         own_keys_of(in), to, rounded, gradients.d_queries);
}

}  // namespace eaglet::cuda
