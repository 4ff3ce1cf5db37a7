#include "ops/attention_tiles_cuda.h"

namespace eaglet::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;

// c [16 * kStrips, 8 * kColumns] = left rows right rows^T: both tiles are multiplied along their columns.
template <int kWidth, int kStrips, int kColumns>
__device__ __forceinline__ void multiply_turned(std::uint16_t* left, int left_row, std::uint16_t* right,
                                                float (&c)[kStrips][kColumns][4]) {
  EAGLET_UNROLL
  for (int s = 0; s < kStrips; ++s) {
    EAGLET_UNROLL
    for (int i = 0; i < kColumns; ++i) c[s][i][0] = c[s][i][1] = c[s][i][2] = c[s][i][3] = 0;
  }

  EAGLET_UNROLL_TWO
  for (int part = 0; part < kWidth / 16; ++part) {
    std::uint32_t a[kStrips][4];
    EAGLET_UNROLL
    for (int s = 0; s < kStrips; ++s) load_left<kWidth>(left, left_row + 16 * s, part, a[s]);
    EAGLET_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) {
      std::uint32_t b[4];
      load_right_turned<kWidth>(right, 16 * i, part, b);
      EAGLET_UNROLL
      for (int s = 0; s < kStrips; ++s) {
        multiply_tile(a[s], b[0], b[1], c[s][2 * i]);
        multiply_tile(a[s], b[2], b[3], c[s][2 * i + 1]);
      }
    }
  }
}

// c [16 * kStrips, 8 * kColumns] += p [16 * kStrips, 8 * kInner] right, columns from 16 * first_part on.
template <int kWidth, int kStrips, int kInner, int kColumns>
__device__ __forceinline__ void add_product(const float (&p)[kStrips][kInner][4], std::uint16_t* right,
                                            int first_part, float (&c)[kStrips][kColumns][4]) {
  EAGLET_UNROLL
  for (int i = 0; i < kInner / 2; ++i) {
    std::uint32_t a[kStrips][4];
    EAGLET_UNROLL
    for (int s = 0; s < kStrips; ++s) result_as_left(p[s][2 * i], p[s][2 * i + 1], a[s]);
    EAGLET_UNROLL
    for (int part = 0; part < kColumns / 2; ++part) {
      std::uint32_t b[4];
      load_right<kWidth>(right, 16 * i, first_part + part, b);
      EAGLET_UNROLL
      for (int s = 0; s < kStrips; ++s) {
        multiply_tile(a[s], b[0], b[1], c[s][2 * part]);
        multiply_tile(a[s], b[2], b[3], c[s][2 * part + 1]);
      }
    }
  }
}

template <int kStrips, int kColumns>
__device__ __forceinline__ void clear(float (&c)[kStrips][kColumns][4]) {
  EAGLET_UNROLL
  for (int s = 0; s < kStrips; ++s) {
    EAGLET_UNROLL
    for (int i = 0; i < kColumns; ++i) c[s][i][0] = c[s][i][1] = c[s][i][2] = c[s][i][3] = 0;
  }
}

// ---- what flows to queries through step-0 keys: a block owns rows and walks over the keys they see

template <int kWidth>
struct QueryTiling {
  static constexpr int kStrips = kWidth <= 128 ? 2 : 1, kRows = kWarps * 16 * kStrips;
  static constexpr int kKeys = kWidth <= 128 ? 32 : 16;
  // Queries and d_out, and two tiles of keys and of values each.
  static constexpr std::size_t kSharedBytes = sizeof(std::uint16_t) * kWidth * (2 * kRows + 4 * kKeys);
};

// scores become ds / scale = p (dp - delta). `facts`: of the warp's rows; first_key: the tile's.
template <int kStrips, int kColumns>
__device__ __forceinline__ void flow_to_scores(const RowFacts* facts, int first_key, bool all_seen,
                                               float scale, const float (&dp)[kStrips][kColumns][4],
                                               float (&scores)[kStrips][kColumns][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  EAGLET_UNROLL
  for (int s = 0; s < kStrips; ++s) {
    EAGLET_UNROLL
    for (int half = 0; half < 2; ++half) {
      const RowFacts f = facts[16 * s + lane / 4 + 8 * half];
      EAGLET_UNROLL
      for (int i = 0; i < kColumns; ++i) {
        EAGLET_UNROLL
        for (int j = 0; j < 2; ++j) {
          const int key = first_key + 8 * i + 2 * (lane % 4) + j, at = 2 * half + j;
          const bool seen = all_seen || (key >= f.seen.first && key <= f.seen.last);
          const float p = seen ? fast_exp2(scores[s][i][at] * scale - f.log2_sum) : 0.0f;
          scores[s][i][at] = p * (dp[s][i][at] - f.delta);
        }
      }
    }
  }
}

// Grid: row blocks x kv heads; the last rows first.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    query_flow(const __grid_constant__ Call c, const __grid_constant__ Rounded r, bool even,
               float* d_queries) {
  using T = QueryTiling<kWidth>;
  EAGLET_DYNAMIC_SHARED(std::uint16_t, queries);
  EAGLET_SHARED_ARRAY(RowFacts, facts, T::kRows);
  std::uint16_t *const d_out = queries + T::kRows * kWidth, *const ring = d_out + T::kRows * kWidth;
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * T::kRows;
  const int end_row = min(first_row + T::kRows, r.rows);
  const std::int64_t kv_head = blockIdx.y, of_head = kv_head * r.rows;
  const std::uint16_t *keys = r.keys0 + kv_head * r.keys * kWidth,
                      *values = r.values0 + kv_head * r.keys * kWidth;
  for (int i = static_cast<int>(threadIdx.x); i < T::kRows; i += kThreads)
    facts[i] = r.facts[of_head + min(first_row + i, r.rows - 1)];
  const SeenKeys of_first = r.facts[of_head + first_row].seen, of_last = r.facts[of_head + end_row - 1].seen;
  const int end = of_last.last + 1;
  fetch_rows<kWidth, T::kRows, kThreads>(r.queries + of_head * kWidth, first_row, r.rows, queries);
  fetch_rows<kWidth, T::kRows, kThreads>(r.d_out + of_head * kWidth, first_row, r.rows, d_out);
  const auto fetch_tile = [&](int first, int stage) {
    std::uint16_t* to_keys = ring + stage * 2 * T::kKeys * kWidth;
    fetch_rows<kWidth, T::kKeys, kThreads>(keys, first, end, to_keys);
    fetch_rows<kWidth, T::kKeys, kThreads>(values, first, end, to_keys + T::kKeys * kWidth);
  };
  fetch_tile(of_first.first, 0);

  const int in_block = static_cast<int>(threadIdx.x) / kWarp * 16 * T::kStrips;  // the warp's first row
  float d_query[T::kStrips][kWidth / 8][4];
  clear(d_query);
  int stage = 0;
  for (int first = of_first.first; first < end; first += T::kKeys, stage = 1 - stage) {
    wait_for_copies();
    __syncthreads();  // the tile is here, and nobody reads the one before any more
    if (first + T::kKeys < end) fetch_tile(first + T::kKeys, 1 - stage);
    const bool seen_by_warp = first <= facts[in_block + 16 * T::kStrips - 1].seen.last &&
                              first + T::kKeys > facts[in_block].seen.first;
    if (!seen_by_warp) continue;
    std::uint16_t *tile_keys = ring + stage * 2 * T::kKeys * kWidth,
                  *tile_values = tile_keys + T::kKeys * kWidth;
    float scores[T::kStrips][T::kKeys / 8][4], dp[T::kStrips][T::kKeys / 8][4];
    multiply_turned<kWidth>(queries, in_block, tile_keys, scores);
    multiply_turned<kWidth>(d_out, in_block, tile_values, dp);
    const bool all_seen = first >= of_last.first && first + T::kKeys - 1 <= of_first.last;
    flow_to_scores(facts + in_block, first, all_seen, c.scale * kLog2E, dp, scores);
    add_product<kWidth>(scores, tile_keys, 0, d_query);
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  EAGLET_UNROLL
  for (int s = 0; s < T::kStrips; ++s) {
    EAGLET_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first_row + in_block + 16 * s + lane / 4 + 8 * half;
      if (row >= c.rows()) continue;
      EAGLET_UNROLL
      for (int i = 0; i < kWidth / 8; ++i)
        put_two(d_queries + c.at(row, kv_head) * c.head_dim, 8 * i + 2 * (lane % 4), c.head_dim, even,
                c.scale * d_query[s][i][2 * half], c.scale * d_query[s][i][2 * half + 1]);
    }
  }
}

// ---- what flows to step-0 keys and values: a block owns keys and walks over the rows that see any of them

template <int kWidth>
struct KeyTiling {
  static constexpr int kKeys = kWarps * 16, kRows = kWidth <= 64 ? 64 : kWidth <= 128 ? 48 : 16;
  // Gradients of 16 keys of 128 columns are what a warp's registers hold: wider heads are done by parts of
  // their columns, each of which makes the scores anew.
  static constexpr int kColumns = kWidth <= 128 ? kWidth : 128, kParts = kWidth / kColumns;
  // Keys and values, and two tiles of queries and of d_out each.
  static constexpr std::size_t kSharedBytes = sizeof(std::uint16_t) * kWidth * (2 * kKeys + 4 * kRows);
};

// First row that sees a key at `key` or later (kLast), or sees nothing before `key`.
template <bool kLast>
__device__ __forceinline__ int first_row_from(const RowFacts* facts, int rows, int key) {
  int low = 0, high = rows;
  while (low < high) {
    const int middle = (low + high) / 2;
    if ((kLast ? facts[middle].seen.last : facts[middle].seen.first) < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Keys down, rows along: scores become p, dp becomes ds / scale. `facts`: of the tile's rows; first_key: the
// warp's.
template <int kColumns>
__device__ __forceinline__ void flow_to_turned_scores(const RowFacts* facts, int real_rows, int first_key,
                                                      bool all_seen, float scale,
                                                      float (&scores)[1][kColumns][4],
                                                      float (&dp)[1][kColumns][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  EAGLET_UNROLL
  for (int i = 0; i < kColumns; ++i) {
    EAGLET_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int row = 8 * i + 2 * (lane % 4) + j;
      const RowFacts f = facts[row];
      EAGLET_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int key = first_key + lane / 4 + 8 * half, at = 2 * half + j;
        const bool seen = all_seen || (row < real_rows && key >= f.seen.first && key <= f.seen.last);
        const float p = seen ? fast_exp2(scores[0][i][at] * scale - f.log2_sum) : 0.0f;
        scores[0][i][at] = p;
        dp[0][i][at] = p * (dp[0][i][at] - f.delta);
      }
    }
  }
}

// Adds a warp's 16 keys to an [S, Kv, D] array.
template <int kColumns>
__device__ __forceinline__ void add_keys(const Call& c, int first_key, int keys, std::int64_t in_array,
                                         int first_column, float factor, const float (&d)[1][kColumns / 8][4],
                                         bool even, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  EAGLET_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int key = first_key + lane / 4 + 8 * half;
    if (key >= keys) continue;
    float* row = to + ((in_array + key) * c.kv_heads + blockIdx.y) * c.head_dim;
    EAGLET_UNROLL
    for (int i = 0; i < kColumns / 8; ++i) {
      const int column = first_column + 8 * i + 2 * (lane % 4);
      const Two before = two_at(row, column, c.head_dim, even);
      put_two(row, column, c.head_dim, even, before.low + factor * d[0][i][2 * half],
              before.high + factor * d[0][i][2 * half + 1]);
    }
  }
}

// Grid: key blocks x kv heads x parts of the columns.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    key_flow(const __grid_constant__ Call c, const __grid_constant__ Rounded r, bool even, float* d_keys,
             float* d_values) {
  using T = KeyTiling<kWidth>;
  EAGLET_DYNAMIC_SHARED(std::uint16_t, keys);
  EAGLET_SHARED_ARRAY(RowFacts, facts, 2 * T::kRows);
  std::uint16_t *const values = keys + T::kKeys * kWidth, *const ring = values + T::kKeys * kWidth;
  const std::int64_t kv_head = blockIdx.y;
  const int first_key = static_cast<int>(blockIdx.x) * T::kKeys, end_key = min(first_key + T::kKeys, r.keys);
  const RowFacts* all_facts = r.facts + kv_head * r.rows;
  const std::uint16_t *queries = r.queries + kv_head * r.rows * kWidth,
                      *d_out = r.d_out + kv_head * r.rows * kWidth;
  const int begin_row = first_row_from<true>(all_facts, r.rows, first_key);
  const int end_row = first_row_from<false>(all_facts, r.rows, end_key);
  fetch_rows<kWidth, T::kKeys, kThreads>(r.keys0 + kv_head * r.keys * kWidth, first_key, r.keys, keys);
  fetch_rows<kWidth, T::kKeys, kThreads>(r.values0 + kv_head * r.keys * kWidth, first_key, r.keys, values);
  const auto fetch_tile = [&](int first, int stage) {
    std::uint16_t* to_queries = ring + stage * 2 * T::kRows * kWidth;
    fetch_rows<kWidth, T::kRows, kThreads>(queries, first, end_row, to_queries);
    fetch_rows<kWidth, T::kRows, kThreads>(d_out, first, end_row, to_queries + T::kRows * kWidth);
    const int i = static_cast<int>(threadIdx.x);
    if (i < T::kRows)
      copy_16_async(facts + stage * T::kRows + i, all_facts + min(first + i, end_row - 1),
                    first + i < end_row);
  };
  if (begin_row < end_row) fetch_tile(begin_row, 0);

  const int in_block = static_cast<int>(threadIdx.x) / kWarp * 16;  // the warp's first key
  const int first_part = static_cast<int>(blockIdx.z) * T::kColumns / 16;
  float d_key[1][T::kColumns / 8][4], d_value[1][T::kColumns / 8][4];
  clear(d_key);
  clear(d_value);
  int stage = 0;
  for (int first = begin_row; first < end_row; first += T::kRows, stage = 1 - stage) {
    wait_for_copies();
    __syncthreads();  // the tile is here, and nobody reads the one before any more
    if (first + T::kRows < end_row) fetch_tile(first + T::kRows, 1 - stage);
    const RowFacts* of_rows = facts + stage * T::kRows;
    const int real_rows = min(end_row - first, T::kRows), warp_key = first_key + in_block;
    const SeenKeys of_first = of_rows[0].seen, of_last = of_rows[real_rows - 1].seen;
    if (of_last.last < warp_key || of_first.first > warp_key + 15) continue;
    std::uint16_t *tile_queries = ring + stage * 2 * T::kRows * kWidth,
                  *tile_d_out = tile_queries + T::kRows * kWidth;
    float scores[1][T::kRows / 8][4], dp[1][T::kRows / 8][4];
    multiply_turned<kWidth>(keys, in_block, tile_queries, scores);
    multiply_turned<kWidth>(values, in_block, tile_d_out, dp);
    const bool all_seen =
        real_rows == T::kRows && warp_key >= of_last.first && warp_key + 15 <= of_first.last;
    flow_to_turned_scores(of_rows, real_rows, warp_key, all_seen, c.scale * kLog2E, scores, dp);
    add_product<kWidth>(scores, tile_d_out, first_part, d_value);
    add_product<kWidth>(dp, tile_queries, first_part, d_key);
  }
  wait_for_copies();  // of keys that no row sees
  const int first_column = 16 * first_part;
  add_keys<T::kColumns>(c, first_key + in_block, r.keys, r.first_key, first_column, c.scale, d_key, even,
                        d_keys);
  add_keys<T::kColumns>(c, first_key + in_block, r.keys, r.first_key, first_column, 1.0f, d_value, even,
                        d_values);
}

unsigned blocks(int n, int each) {
  return static_cast<unsigned>((n + each - 1) / each);
}

bool aligned_to_two(const AttentionShape& shape, const AttentionGradients& g) {
  const auto bits = reinterpret_cast<std::uintptr_t>(g.d_queries) |
                    reinterpret_cast<std::uintptr_t>(g.d_keys0) |
                    reinterpret_cast<std::uintptr_t>(g.d_values0);
  return shape.head_dim % 2 == 0 && bits % (2 * sizeof(float)) == 0;
}

template <int kWidth>
void run(const AttentionShape& shape, const AttentionInputs& in, Backward b, const AttentionGradients& g) {
  Call c;
  Rounded r;
  if (!round_operands(shape, in, kWidth, true, &c, &r, &b)) return;
  const bool even = aligned_to_two(shape, g);
  const auto kv_heads = static_cast<unsigned>(shape.num_kv_heads);
  using Q = QueryTiling<kWidth>;
  launch_with_shared("attention_backward: queries", query_flow<kWidth>,
                     dim3(blocks(r.rows, Q::kRows), kv_heads), dim3(kThreads), Q::kSharedBytes, c, r, even,
                     g.d_queries);
  using K = KeyTiling<kWidth>;
  launch_with_shared("attention_backward: keys", key_flow<kWidth>,
                     dim3(blocks(r.keys, K::kKeys), kv_heads, K::kParts), dim3(kThreads), K::kSharedBytes, c,
                     r, even, g.d_keys0, g.d_values0);
  own_key_gradients(c, b, in, g, true);
}

}  // namespace

void tiled_attention_backward(const AttentionShape& shape, const AttentionInputs& in, const float* out,
                              const float* log_sum_exp, const AttentionGradients& gradients) {
  const Backward b{out, log_sum_exp, gradients.d_out, nullptr};
  switch (tile_width(shape.head_dim)) {
    case 64:
      return run<64>(shape, in, b, gradients);
    case 128:
      return run<128>(shape, in, b, gradients);
    default:
      return run<256>(shape, in, b, gradients);
  }
}

}  // namespace eaglet::cuda
