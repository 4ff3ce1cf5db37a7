#pragma once

// For .cu files only: what the kernels of attention share (docs/math/attention.md). A row is a (query, head
// of the kv head's group) pair.

#include <cstdint>

#include "device/cuda_device.h"
#include "ops/attention.h"

namespace eaglet::cuda {

inline constexpr std::int64_t kMostHeadDim = 256;
inline constexpr int kMostOwn = 64;  // draft/row_plan.h: kMaxTttSteps

// What every kernel needs of a call. first_key and key_of_query [n]: the keys of a query's document begin
// there, and its own row. Both ascend.
struct Call {
  std::int64_t n = 0, group = 0, kv_heads = 0, window = 0;
  int head_dim = 0;
  float scale = 0;
  const std::int32_t *first_key = nullptr, *key_of_query = nullptr;
  const float *queries = nullptr, *keys = nullptr, *values = nullptr;

  __device__ std::int64_t rows() const { return n * group; }
  __device__ std::int64_t query_of(std::int64_t row) const { return row / group; }
  // Of [n, N, D] arrays: where a row of this kv head begins; of [n, N]: in units of one.
  __device__ std::int64_t at(std::int64_t row, std::int64_t kv_head) const {
    return query_of(row) * group * kv_heads + kv_head * group + row % group;
  }
  __device__ std::int64_t first_of(std::int64_t query) const {
    const std::int64_t begin = first_key[query], in_window = key_of_query[query] - window + 1;
    return window > 0 && in_window > begin ? in_window : begin;
  }
  // Does the row's query see the step-0 key?
  __device__ bool sees(std::int64_t row, std::int64_t key) const {
    const std::int64_t query = query_of(row);
    return key >= first_of(query) && key <= key_of_query[query];
  }
};

// Keys and values that rows made themselves at later steps.
struct OwnKeys {
  int count = 0;
  const float *keys[kMostOwn], *values[kMostOwn];
  const std::int32_t* index[kMostOwn];
};
struct OwnGradients {
  float *keys[kMostOwn], *values[kMostOwn];
};

struct Backward {
  const float *out = nullptr, *log_sum_exp = nullptr, *d_out = nullptr;
  float* delta = nullptr;  // [n, N]: sum_j p_j dp_j = <out, d_out>
};

/// first_key: memory for [n] on the device, filled from the spans.
Call make_call(const AttentionShape& shape, const AttentionInputs& in, std::int32_t* first_key);
OwnKeys own_keys_of(const AttentionInputs& in);
/// Step-0 keys that the call's documents have.
struct KeyRange {
  std::int64_t begin, end;
};
KeyRange all_keys(const AttentionInputs& in);

/// out and log_sum_exp over step-0 keys become those over own keys too, exactly. Queries are rounded to bf16,
/// as the tiles' kernels did.
void merge_own_keys(const Call& c, const AttentionInputs& in, float* out, float* log_sum_exp);
/// What flows through own keys: adds to d_own_keys, d_own_values and, where it was written before, d_queries.
/// With `rounded`, queries and d_out are rounded to bf16 as the tiles' kernels did.
void own_key_gradients(const Call& c, const Backward& b, const AttentionInputs& in,
                       const AttentionGradients& gradients, bool rounded);

/// The ops where products are of bf16, on tensor cores.
void tiled_attention(const AttentionShape& shape, const AttentionInputs& in, float* out, float* log_sum_exp);
void tiled_attention_backward(const AttentionShape& shape, const AttentionInputs& in, const float* out,
                              const float* log_sum_exp, const AttentionGradients& gradients);

}  // namespace eaglet::cuda
