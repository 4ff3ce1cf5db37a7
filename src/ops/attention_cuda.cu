#include <algorithm>

#include "ops/attention_cuda.h"
#include "ops/cuda_ops.h"

namespace eaglet::cuda {
namespace {

// fp32 throughout (docs/math/attention.md). Rows are (query, head of the kv head's group) pairs, so that
// heads which share keys share what is loaded of them. A block has kRows rows, or keys, with kLanes threads
// each; a thread has every kLanes-th column of its row.
constexpr int kRows = 16, kKeys = 16, kLanes = 8, kThreads = kRows * kLanes;
constexpr int kKeysEach = kKeys / kLanes;

// Tiles in shared memory have one column more than they need, so that lanes which walk down do not meet in a
// bank.
__device__ int stride_of(const Call& c) {
  return c.head_dim + 1;
}

// Rows [first, first + kRows) of an [n, N, D] array; zeros beyond the last.
__device__ void load_rows(const Call& c, const float* from, std::int64_t first, std::int64_t kv_head,
                          float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * c.head_dim; i += kThreads) {
    const int r = i / c.head_dim, d = i % c.head_dim;
    to[r * stride_of(c) + d] = first + r < c.rows() ? from[c.at(first + r, kv_head) * c.head_dim + d] : 0.0f;
  }
}

// Keys or values [first, min(first + kKeys, end)) of an [S, Kv, D] array; zeros beyond.
__device__ void load_keys(const Call& c, const float* from, std::int64_t first, std::int64_t end,
                          std::int64_t kv_head, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * c.head_dim; i += kThreads) {
    const int key = i / c.head_dim, d = i % c.head_dim;
    to[key * stride_of(c) + d] =
        first + key < end ? from[((first + key) * c.kv_heads + kv_head) * c.head_dim + d] : 0.0f;
  }
}

__device__ float dot(int n, const float* a, const float* b) {
  float sum = 0;
  for (int d = 0; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

// Over the kLanes threads of a row, the same in each.
__device__ float lanes_sum(float value) {
  for (int bits = kLanes / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kWholeWarp, value, bits);
  return value;
}
__device__ float lanes_max(float value) {
  for (int bits = kLanes / 2; bits > 0; bits /= 2)
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, bits));
  return value;
}

// Keys that any row of the block sees.
__device__ KeyRange keys_of(const Call& c, std::int64_t first_row) {
  const std::int64_t last_row = min(first_row + kRows, c.rows()) - 1;
  return {c.first_of(c.query_of(first_row)), c.key_of_query[c.query_of(last_row)] + std::int64_t{1}};
}

// One row's running softmax, the same in its kLanes threads, and the columns of this thread.
template <int kColumns>
struct Running {
  float largest = -INFINITY, sum = 0;
  float out[kColumns];
  __device__ Running() {
    for (int i = 0; i < kColumns; ++i) out[i] = 0;
  }
  // Makes room for a larger maximum: what was summed so far shrinks.
  __device__ void raise(float candidate) {
    if (candidate <= largest) return;
    const float shrink = expf(largest - candidate);  // 0 the first time: largest is -infinity
    largest = candidate;
    sum *= shrink;
    for (int i = 0; i < kColumns; ++i) out[i] *= shrink;
  }
  __device__ void add(int head_dim, int lane, float p, const float* value) {
    sum += p;
    for (int i = 0; i < kColumns; ++i)
      if (lane + kLanes * i < head_dim) out[i] += p * value[lane + kLanes * i];
  }
};

template <int kColumns>
__device__ void add_tile(const Call& c, std::int64_t row, std::int64_t first_key, std::int64_t end,
                         const float* query, const float* keys, const float* values, float* p,
                         Running<kColumns>* run) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes, in_block = static_cast<int>(threadIdx.x) / kLanes;
  float score[kKeysEach], largest = -INFINITY;
  for (int j = 0; j < kKeysEach; ++j) {
    const int key = lane + kLanes * j;
    const bool seen = row < c.rows() && first_key + key < end && c.sees(row, first_key + key);
    score[j] = seen ? c.scale * dot(c.head_dim, query, keys + key * stride_of(c)) : -INFINITY;
    largest = fmaxf(largest, score[j]);
  }
  run->raise(lanes_max(largest));
  for (int j = 0; j < kKeysEach; ++j)
    p[in_block * kKeys + lane + kLanes * j] = score[j] == -INFINITY ? 0.0f : expf(score[j] - run->largest);
  __syncwarp();  // the kLanes threads of a row are in one warp
  for (int key = 0; key < kKeys; ++key) {
    const float of_key = p[in_block * kKeys + key];
    if (of_key != 0) run->add(c.head_dim, lane, of_key, values + key * stride_of(c));
  }
  __syncwarp();
}

// The row's own keys, exactly: k more columns of the softmax.
template <int kColumns>
__device__ void add_own(const Call& c, const OwnKeys& own, std::int64_t row, std::int64_t kv_head,
                        const float* query, Running<kColumns>* run) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int j = 0; j < own.count; ++j) {
    const std::int64_t of_row = row < c.rows() ? own.index[j][c.query_of(row)] : 0;
    const std::int64_t at = (of_row * c.kv_heads + kv_head) * c.head_dim;
    float part = 0;
    if (row < c.rows())
      for (int d = lane; d < c.head_dim; d += kLanes) part += query[d] * own.keys[j][at + d];
    const float score = c.scale * lanes_sum(part);
    if (row >= c.rows()) continue;
    run->raise(score);
    run->add(c.head_dim, lane, expf(score - run->largest), own.values[j] + at);
  }
}

// Grid: row blocks x kv heads.
template <int kColumns>
__global__ void attend(Call c, OwnKeys own, float* out, float* log_sum_exp) {
  EAGLET_DYNAMIC_SHARED(float, memory);
  const int tile = kRows * stride_of(c);
  float *queries = memory, *keys = queries + tile, *values = keys + tile, *p = values + tile;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kRows, kv_head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, in_block = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t row = first_row + in_block;
  const float* query = queries + in_block * stride_of(c);
  load_rows(c, c.queries, first_row, kv_head, queries);
  Running<kColumns> run;
  const KeyRange range = keys_of(c, first_row);
  for (std::int64_t first = range.begin; first < range.end; first += kKeys) {
    load_keys(c, c.keys, first, range.end, kv_head, keys);
    load_keys(c, c.values, first, range.end, kv_head, values);
    __syncthreads();
    add_tile(c, row, first, range.end, query, keys, values, p, &run);
    __syncthreads();  // the tile is loaded anew
  }
  add_own(c, own, row, kv_head, query, &run);
  if (row >= c.rows()) return;
  const std::int64_t at = c.at(row, kv_head);
  for (int i = 0; i < kColumns; ++i)
    if (lane + kLanes * i < c.head_dim) out[at * c.head_dim + lane + kLanes * i] = run.out[i] / run.sum;
  if (lane == 0) log_sum_exp[at] = run.largest + logf(run.sum);
}

// p and ds = scale * p * (dp - delta) of one row and key; both 0 where the row does not see the key.
struct Pair {
  float p = 0, ds = 0;
};
__device__ Pair pair_of(const Call& c, bool seen, const float* query, const float* key, const float* d_out,
                        const float* value, float lse, float delta) {
  Pair pair;
  if (!seen) return pair;
  pair.p = expf(c.scale * dot(c.head_dim, query, key) - lse);
  pair.ds = c.scale * pair.p * (dot(c.head_dim, d_out, value) - delta);
  return pair;
}

// delta and what flows to the queries through step-0 keys. Grid: row blocks x kv heads.
template <int kColumns>
__global__ void query_gradients(Call c, Backward b, float* d_queries) {
  EAGLET_DYNAMIC_SHARED(float, memory);
  const int tile = kRows * stride_of(c);
  float *queries = memory, *d_outs = queries + tile, *keys = d_outs + tile, *values = keys + tile,
        *ds = values + tile;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kRows, kv_head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, in_block = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t row = first_row + in_block, at = row < c.rows() ? c.at(row, kv_head) : 0;
  load_rows(c, c.queries, first_row, kv_head, queries);
  load_rows(c, b.d_out, first_row, kv_head, d_outs);
  __syncthreads();
  float part = 0;
  if (row < c.rows())
    for (int d = lane; d < c.head_dim; d += kLanes)
      part += b.out[at * c.head_dim + d] * d_outs[in_block * stride_of(c) + d];
  const float delta = lanes_sum(part), lse = row < c.rows() ? b.log_sum_exp[at] : 0.0f;
  if (lane == 0 && row < c.rows()) b.delta[at] = delta;
  float d_query[kColumns];
  for (int i = 0; i < kColumns; ++i) d_query[i] = 0;
  const KeyRange range = keys_of(c, first_row);
  for (std::int64_t first = range.begin; first < range.end; first += kKeys) {
    load_keys(c, c.keys, first, range.end, kv_head, keys);
    load_keys(c, c.values, first, range.end, kv_head, values);
    __syncthreads();
    for (int j = 0; j < kKeysEach; ++j) {
      const int key = lane + kLanes * j;
      const bool seen = row < c.rows() && first + key < range.end && c.sees(row, first + key);
      ds[in_block * kKeys + key] =
          pair_of(c, seen, queries + in_block * stride_of(c), keys + key * stride_of(c),
                  d_outs + in_block * stride_of(c), values + key * stride_of(c), lse, delta)
              .ds;
    }
    __syncwarp();
    for (int key = 0; key < kKeys; ++key)
      for (int i = 0; i < kColumns; ++i)
        if (lane + kLanes * i < c.head_dim)
          d_query[i] += ds[in_block * kKeys + key] * keys[key * stride_of(c) + lane + kLanes * i];
    __syncthreads();
  }
  if (row >= c.rows()) return;
  for (int i = 0; i < kColumns; ++i)
    if (lane + kLanes * i < c.head_dim) d_queries[at * c.head_dim + lane + kLanes * i] = d_query[i];
}

// First row whose query has its own key at `key` or later (of_first: whose document begins after it).
__device__ std::int64_t first_row_from(const Call& c, const std::int32_t* of_query, std::int64_t key) {
  std::int64_t low = 0, high = c.n;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (of_query[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low * c.group;
}

// What flows to step-0 keys and values: a block owns kKeys of them and walks over the rows that see any, so
// nothing races. Grid: key blocks from first_key on x kv heads.
template <int kColumns>
__global__ void key_gradients(Call c, Backward b, std::int64_t first_of_all, std::int64_t end_of_all,
                              float* d_keys, float* d_values) {
  EAGLET_DYNAMIC_SHARED(float, memory);
  const int tile = kRows * stride_of(c);
  float *keys = memory, *values = keys + tile, *queries = values + tile, *d_outs = queries + tile,
        *p = d_outs + tile, *ds = p + kRows * kKeys;
  const std::int64_t kv_head = blockIdx.y;
  const std::int64_t first = first_of_all + static_cast<std::int64_t>(blockIdx.x) * kKeys;
  const std::int64_t end = min(first + kKeys, end_of_all);
  const int lane = static_cast<int>(threadIdx.x) % kLanes, in_block = static_cast<int>(threadIdx.x) / kLanes;
  load_keys(c, c.keys, first, end, kv_head, keys);
  load_keys(c, c.values, first, end, kv_head, values);
  float d_key[kColumns], d_value[kColumns];
  for (int i = 0; i < kColumns; ++i) d_key[i] = d_value[i] = 0;
  const std::int64_t end_row = first_row_from(c, c.first_key, end);
  for (std::int64_t from = first_row_from(c, c.key_of_query, first); from < end_row; from += kRows) {
    load_rows(c, c.queries, from, kv_head, queries);
    load_rows(c, b.d_out, from, kv_head, d_outs);
    __syncthreads();
    const std::int64_t row = from + in_block, at = row < c.rows() ? c.at(row, kv_head) : 0;
    for (int j = 0; j < kKeysEach; ++j) {
      const int key = lane + kLanes * j;
      const bool seen = row < end_row && first + key < end && c.sees(row, first + key);
      const Pair pair = pair_of(c, seen, queries + in_block * stride_of(c), keys + key * stride_of(c),
                                d_outs + in_block * stride_of(c), values + key * stride_of(c),
                                b.log_sum_exp[at], b.delta[at]);
      p[in_block * kKeys + key] = pair.p;
      ds[in_block * kKeys + key] = pair.ds;
    }
    __syncthreads();
    for (int r = 0; r < kRows; ++r)  // from here on in_block is a key
      for (int i = 0; i < kColumns; ++i)
        if (lane + kLanes * i < c.head_dim) {
          d_value[i] += p[r * kKeys + in_block] * d_outs[r * stride_of(c) + lane + kLanes * i];
          d_key[i] += ds[r * kKeys + in_block] * queries[r * stride_of(c) + lane + kLanes * i];
        }
    __syncthreads();
  }
  if (first + in_block >= end) return;
  const std::int64_t at = ((first + in_block) * c.kv_heads + kv_head) * c.head_dim;
  for (int i = 0; i < kColumns; ++i)
    if (lane + kLanes * i < c.head_dim) {
      d_keys[at + lane + kLanes * i] += d_key[i];
      d_values[at + lane + kLanes * i] += d_value[i];
    }
}

// Memory of the op for a call: first_key, and delta for backward.
struct Memory {
  std::int32_t* first_key = nullptr;
  float* delta = nullptr;
};
Memory take_memory(const AttentionShape& shape, const AttentionInputs& in) {
  const std::uint64_t keys = static_cast<std::uint64_t>((in.num_queries + 3) / 4 * 4) * sizeof(std::int32_t);
  auto* block = static_cast<char*>(
      op_scratch(keys + static_cast<std::uint64_t>(in.num_queries * shape.num_heads) * sizeof(float)));
  if (block == nullptr) return {};
  return {reinterpret_cast<std::int32_t*>(block), reinterpret_cast<float*>(block + keys)};
}

// `tiles` of kRows rows and `squares` of rows x keys.
std::size_t shared_bytes(const AttentionShape& shape, int tiles, int squares) {
  return sizeof(float) *
         static_cast<std::size_t>(tiles * kRows * (shape.head_dim + 1) + squares * kRows * kKeys);
}

dim3 row_grid(const AttentionShape& shape, const AttentionInputs& in) {
  const std::int64_t rows = in.num_queries * (shape.num_heads / shape.num_kv_heads);
  return dim3(static_cast<unsigned>((rows + kRows - 1) / kRows), static_cast<unsigned>(shape.num_kv_heads));
}

bool fits(const AttentionShape& shape, const AttentionInputs& in) {
  if (shape.head_dim <= kMostHeadDim && in.num_own <= kMostOwn) return true;
  note_text("attention: heads of at most 256 and 64 drafting steps are what this device's kernels take");
  return false;
}

}  // namespace

void attention(const AttentionShape& shape, const AttentionInputs& in, float* out, float* log_sum_exp, float*,
               std::int64_t) {
  if (in.num_queries == 0 || !fits(shape, in)) return;
  if (shape.device_type == ComputeType::kBf16) return tiled_attention(shape, in, out, log_sum_exp);
  const Memory memory = take_memory(shape, in);
  if (memory.first_key == nullptr) return;
  launch_with_shared("attention", shape.head_dim <= kMostHeadDim / 2 ? attend<16> : attend<32>,
                     row_grid(shape, in), dim3(kThreads), shared_bytes(shape, 3, 1),
                     make_call(shape, in, memory.first_key), own_keys_of(in), out, log_sum_exp);
}

void attention_backward(const AttentionShape& shape, const AttentionInputs& in, const float* out,
                        const float* log_sum_exp, const AttentionGradients& gradients, float*, std::int64_t) {
  if (in.num_queries == 0 || !fits(shape, in)) return;
  if (shape.device_type == ComputeType::kBf16)
    return tiled_attention_backward(shape, in, out, log_sum_exp, gradients);
  const Memory memory = take_memory(shape, in);
  if (memory.first_key == nullptr) return;
  const Call c = make_call(shape, in, memory.first_key);
  const Backward b{out, log_sum_exp, gradients.d_out, memory.delta};
  const bool narrow = shape.head_dim <= kMostHeadDim / 2;
  launch_with_shared("attention_backward: queries", narrow ? query_gradients<16> : query_gradients<32>,
                     row_grid(shape, in), dim3(kThreads), shared_bytes(shape, 4, 1), c, b,
                     gradients.d_queries);
  const auto [first, end] = all_keys(in);
  const dim3 key_grid(static_cast<unsigned>((end - first + kKeys - 1) / kKeys),
                      static_cast<unsigned>(shape.num_kv_heads));
  launch_with_shared("attention_backward: keys", narrow ? key_gradients<16> : key_gradients<32>, key_grid,
                     dim3(kThreads), shared_bytes(shape, 4, 2), c, b, first, end, gradients.d_keys0,
                     gradients.d_values0);
  own_key_gradients(c, b, in, gradients, false);
}

}  // namespace eaglet::cuda
