#pragma once

#include <cstdint>
#include <vector>

#include "device/compute_type.h"

namespace eaglet {

/// Attention of one drafting step (docs/math/attention.md). A query row sees the step-0 keys of its own
/// document, causal and perhaps windowed, and the keys that its own row made at steps 1..k. No mask and no
/// [rows, rows] matrix over the batch exist: a block of queries of one document meets that document's keys
/// only.
///
///   queries [n, N*D]      keys0, values0 [S, Kv*D]     own keys and values of step j: [n_j, Kv*D]
struct AttentionShape {
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;  // N, Kv, D; N is a multiple of Kv
  std::int64_t window = 0;  // 0 = none; else keys j with p - window < j <= p
  /// What a device's tensor cores multiply step-0 keys and values in; the host multiplies in fp32, and own keys
  /// are everywhere. bf16: queries, step-0 keys and values, and the gradient of the output are rounded first.
  ComputeType device_type = ComputeType::kF32;
};

/// Queries of one document: rows [query_begin, query_end) of the query array, keys [key_begin, key_end) of
/// the step-0 arrays.
struct AttentionSpan {
  std::int32_t query_begin = 0, query_end = 0, key_begin = 0, key_end = 0;
};

/// What one call works on. Spans ascend, and so does key_of_query. key_of_query [n]: index in the step-0 arrays
/// of the query's own row (its last visible step-0 key).
struct AttentionInputs {
  std::int64_t num_queries = 0;
  const std::vector<AttentionSpan>* spans = nullptr;
  const std::int32_t* key_of_query = nullptr;
  const float* queries = nullptr;
  const float* keys0 = nullptr;
  const float* values0 = nullptr;
  std::int64_t num_own = 0;                  // k: how many own steps there are
  const float* const* own_keys = nullptr;    // [k] arrays
  const float* const* own_values = nullptr;  // [k]
  const std::int32_t* const* own_index =
      nullptr;  // [k] arrays [n]: row of own_keys[j] that belongs to query i
};

struct AttentionGradients {
  const float* d_out = nullptr;  // [n, N*D]
  float* d_queries = nullptr;    // [n, N*D] overwritten
  float* d_keys0 = nullptr;      // [S, Kv*D] added to
  float* d_values0 = nullptr;
  float* const* d_own_keys = nullptr;  // [k] added to
  float* const* d_own_values = nullptr;
};

/// Floats of scratch that one thread needs, for documents of at most max_keys step-0 keys and at most max_own
/// own steps.
std::int64_t attention_scratch_floats(const AttentionShape& shape, std::int64_t max_keys,
                                      std::int64_t max_own);

/// out [n, N*D] and log_sum_exp [n, N] (kept for backward). `scratch`: num_threads() *
/// attention_scratch_floats(...).
void attention(const AttentionShape& shape, const AttentionInputs& in, float* out, float* log_sum_exp,
               float* scratch, std::int64_t scratch_floats_per_thread);

/// Backward; recomputes the probabilities from log_sum_exp. One document's keys of one kv head belong to one
/// thread, so nothing races and the sum order never depends on the number of threads.
void attention_backward(const AttentionShape& shape, const AttentionInputs& in, const float* out,
                        const float* log_sum_exp, const AttentionGradients& gradients, float* scratch,
                        std::int64_t scratch_floats_per_thread);

}  // namespace eaglet
