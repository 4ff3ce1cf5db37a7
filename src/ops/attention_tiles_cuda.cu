#include "ops/attention_tiles_cuda.h"

namespace eaglet::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;

// A warp has kStrips times 16 rows. 32 rows a warp, where the registers allow it (64 numbers of output a
// thread and strip at 128 columns): a warp reads every key of the tile, and below that the reading, not the
// tensor core, sets the pace.
template <int kWidth>
struct Tiling {
  static constexpr int kStrips = kWidth <= 128 ? 2 : 1, kRows = kWarps * 16 * kStrips;
  static constexpr int kKeys = kWidth <= 128 ? 64 : 32;
  // Queries, and two tiles of keys and of values each: one is copied while the other is used.
  static constexpr std::size_t kSharedBytes = sizeof(std::uint16_t) * kWidth * (kRows + 4 * kKeys);
};

// The rows of one warp: scores of a tile and the output so far, as multiply_tile() lays results out. Row
// `half` of a strip is g + 8 half with g = lane / 4.
template <int kWidth>
struct Rows {
  using T = Tiling<kWidth>;
  float scores[T::kStrips][T::kKeys / 8][4];
  float out[T::kStrips][kWidth / 8][4];
  float largest[T::kStrips][2], sum[T::kStrips][2];  // sum: of this lane until finish_sums()

  __device__ __forceinline__ void begin() {
    EAGLET_UNROLL
    for (int s = 0; s < T::kStrips; ++s) {
      EAGLET_UNROLL
      for (int half = 0; half < 2; ++half) {
        largest[s][half] = -INFINITY;
        sum[s][half] = 0;
      }
      EAGLET_UNROLL
      for (int i = 0; i < kWidth / 8; ++i) out[s][i][0] = out[s][i][1] = out[s][i][2] = out[s][i][3] = 0;
    }
  }

  // scores = queries keys^T
  __device__ __forceinline__ void multiply_keys(std::uint16_t* queries, int first_row, std::uint16_t* keys) {
    EAGLET_UNROLL
    for (int s = 0; s < T::kStrips; ++s) {
      EAGLET_UNROLL
      for (int i = 0; i < T::kKeys / 8; ++i)
        scores[s][i][0] = scores[s][i][1] = scores[s][i][2] = scores[s][i][3] = 0;
    }

    EAGLET_UNROLL_TWO
    for (int part = 0; part < kWidth / 16; ++part) {
      std::uint32_t a[T::kStrips][4];
      EAGLET_UNROLL
      for (int s = 0; s < T::kStrips; ++s) load_left<kWidth>(queries, first_row + 16 * s, part, a[s]);
      EAGLET_UNROLL
      for (int i = 0; i < T::kKeys / 16; ++i) {
        std::uint32_t b[4];
        load_right_turned<kWidth>(keys, 16 * i, part, b);
        EAGLET_UNROLL
        for (int s = 0; s < T::kStrips; ++s) {
          multiply_tile(a[s], b[0], b[1], scores[s][2 * i]);
          multiply_tile(a[s], b[2], b[3], scores[s][2 * i + 1]);
        }
      }
    }
  }

  // Scores of keys that a row does not see become -infinity. `first_key`: the tile's.
  __device__ __forceinline__ void hide_unseen(const SeenKeys* seen, int first_key) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    EAGLET_UNROLL
    for (int s = 0; s < T::kStrips; ++s) {
      EAGLET_UNROLL
      for (int half = 0; half < 2; ++half) {
        const SeenKeys of_row = seen[16 * s + lane / 4 + 8 * half];
        EAGLET_UNROLL
        for (int i = 0; i < T::kKeys / 8; ++i) {
          EAGLET_UNROLL
          for (int j = 0; j < 2; ++j) {
            const int key = first_key + 8 * i + 2 * (lane % 4) + j;
            if (key < of_row.first || key > of_row.last) scores[s][i][2 * half + j] = -INFINITY;
          }
        }
      }
    }
  }

  // Makes room for a larger maximum: what was summed so far shrinks. Returns what is subtracted from
  // exponents of two.
  __device__ __forceinline__ float raise(int s, int half, float candidate, float scale) {
    const float top = fmaxf(largest[s][half], candidate);
    const float base = top == -INFINITY ? 0.0f : top * scale;  // nothing seen yet: any base, all is 0
    const float shrink = fast_exp2(largest[s][half] * scale - base);
    largest[s][half] = top;
    sum[s][half] *= shrink;
    EAGLET_UNROLL
    for (int i = 0; i < kWidth / 8; ++i) {
      out[s][i][2 * half] *= shrink;
      out[s][i][2 * half + 1] *= shrink;
    }
    return base;
  }

  // Scores become exp(score - largest); `scale` has the factor log2(e).
  __device__ __forceinline__ void exponentiate(float scale) {
    EAGLET_UNROLL
    for (int s = 0; s < T::kStrips; ++s) {
      EAGLET_UNROLL
      for (int half = 0; half < 2; ++half) {
        float top = -INFINITY;
        EAGLET_UNROLL
        for (int i = 0; i < T::kKeys / 8; ++i)
          top = fmaxf(top, fmaxf(scores[s][i][2 * half], scores[s][i][2 * half + 1]));
        const float base = raise(s, half, quad_max(top), scale);
        EAGLET_UNROLL
        for (int i = 0; i < T::kKeys / 8; ++i) {
          EAGLET_UNROLL
          for (int j = 2 * half; j < 2 * half + 2; ++j) {
            scores[s][i][j] = fast_exp2(scores[s][i][j] * scale - base);
            sum[s][half] += scores[s][i][j];
          }
        }
      }
    }
  }

  // out += p values
  __device__ __forceinline__ void multiply_values(std::uint16_t* values) {
    EAGLET_UNROLL
    for (int i = 0; i < T::kKeys / 16; ++i) {
      std::uint32_t a[T::kStrips][4];
      EAGLET_UNROLL
      for (int s = 0; s < T::kStrips; ++s) result_as_left(scores[s][2 * i], scores[s][2 * i + 1], a[s]);
      EAGLET_UNROLL
      for (int part = 0; part < kWidth / 16; ++part) {
        std::uint32_t b[4];
        load_right<kWidth>(values, 16 * i, part, b);
        EAGLET_UNROLL
        for (int s = 0; s < T::kStrips; ++s) {
          multiply_tile(a[s], b[0], b[1], out[s][2 * part]);
          multiply_tile(a[s], b[2], b[3], out[s][2 * part + 1]);
        }
      }
    }
  }

  __device__ __forceinline__ void finish_sums() {
    EAGLET_UNROLL
    for (int s = 0; s < T::kStrips; ++s) {
      EAGLET_UNROLL
      for (int half = 0; half < 2; ++half) sum[s][half] = quad_sum(sum[s][half]);
    }
  }
};

// The division, of the warp's rows from first_row on. `even`: rows of out are aligned to two numbers.
template <int kWidth>
__device__ __forceinline__ void finish(const Call& c, std::int64_t first_row, bool even, float* out,
                                       float* log_sum_exp, Rows<kWidth>* rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  rows->finish_sums();
  EAGLET_UNROLL
  for (int s = 0; s < Tiling<kWidth>::kStrips; ++s) {
    EAGLET_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first_row + 16 * s + lane / 4 + 8 * half;
      if (row >= c.rows()) continue;
      const std::int64_t at = c.at(row, blockIdx.y);
      const float inverse = 1.0f / rows->sum[s][half];
      EAGLET_UNROLL
      for (int i = 0; i < kWidth / 8; ++i)
        put_two(out + at * c.head_dim, 8 * i + 2 * (lane % 4), c.head_dim, even,
                rows->out[s][i][2 * half] * inverse, rows->out[s][i][2 * half + 1] * inverse);
      if (lane % 4 == 0) log_sum_exp[at] = rows->largest[s][half] * c.scale + logf(rows->sum[s][half]);
    }
  }
}

// Grid: row blocks x kv heads; the last rows, which see the most keys, first.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    attend_tiles(const __grid_constant__ Call c, const __grid_constant__ Rounded r, bool even, float* out,
                 float* log_sum_exp) {
  using T = Tiling<kWidth>;
  EAGLET_DYNAMIC_SHARED(std::uint16_t, queries);
  EAGLET_SHARED_ARRAY(SeenKeys, seen, T::kRows);
  std::uint16_t* const ring = queries + T::kRows * kWidth;
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * T::kRows;
  const int end_row = min(first_row + T::kRows, r.rows);
  const std::int64_t kv_head = blockIdx.y;
  const std::uint16_t *keys = r.keys0 + kv_head * r.keys * kWidth,
                      *values = r.values0 + kv_head * r.keys * kWidth;
  for (int i = static_cast<int>(threadIdx.x); i < T::kRows; i += kThreads)
    seen[i] = r.seen[min(first_row + i, r.rows - 1)];
  const SeenKeys of_first = r.seen[first_row], of_last = r.seen[end_row - 1];
  const int end = of_last.last + 1;
  fetch_rows<kWidth, T::kRows, kThreads>(r.queries + kv_head * r.rows * kWidth, first_row, r.rows, queries);
  const auto fetch_tile = [&](int first, int stage) {
    std::uint16_t* to_keys = ring + stage * 2 * T::kKeys * kWidth;
    fetch_rows<kWidth, T::kKeys, kThreads>(keys, first, end, to_keys);
    fetch_rows<kWidth, T::kKeys, kThreads>(values, first, end, to_keys + T::kKeys * kWidth);
  };
  fetch_tile(of_first.first, 0);

  const int in_block = static_cast<int>(threadIdx.x) / kWarp * 16 * T::kStrips;  // the warp's first row
  Rows<kWidth> rows;
  rows.begin();
  int stage = 0;
  for (int first = of_first.first; first < end; first += T::kKeys, stage = 1 - stage) {
    wait_for_copies();
    __syncthreads();  // the tile is here, and nobody reads the one before any more
    if (first + T::kKeys < end) fetch_tile(first + T::kKeys, 1 - stage);
    std::uint16_t *tile_keys = ring + stage * 2 * T::kKeys * kWidth,
                  *tile_values = tile_keys + T::kKeys * kWidth;
    const bool seen_by_warp =
        first <= seen[in_block + 16 * T::kStrips - 1].last && first + T::kKeys > seen[in_block].first;
    if (!seen_by_warp) continue;
    rows.multiply_keys(queries, in_block, tile_keys);
    const bool by_all = first >= of_last.first && first + T::kKeys - 1 <= of_first.last;
    if (!by_all) rows.hide_unseen(seen + in_block, first);
    rows.exponentiate(c.scale * kLog2E);
    rows.multiply_values(tile_values);
  }
  finish(c, first_row + in_block, even, out, log_sum_exp, &rows);
}

template <int kWidth>
void run(const AttentionShape& shape, const AttentionInputs& in, float* out, float* log_sum_exp) {
  using T = Tiling<kWidth>;
  Call c;
  Rounded r;
  Backward none;
  if (!round_operands(shape, in, kWidth, false, &c, &r, &none)) return;
  const bool even =
      shape.head_dim % 2 == 0 && reinterpret_cast<std::uintptr_t>(out) % (2 * sizeof(float)) == 0;
  launch_with_shared("attention", attend_tiles<kWidth>,
                     dim3(static_cast<unsigned>((r.rows + T::kRows - 1) / T::kRows),
                          static_cast<unsigned>(shape.num_kv_heads)),
                     dim3(kThreads), T::kSharedBytes, c, r, even, out, log_sum_exp);
  merge_own_keys(c, in, out, log_sum_exp);
}

}  // namespace

void tiled_attention(const AttentionShape& shape, const AttentionInputs& in, float* out, float* log_sum_exp) {
  switch (tile_width(shape.head_dim)) {
    case 64:
      return run<64>(shape, in, out, log_sum_exp);
    case 128:
      return run<128>(shape, in, out, log_sum_exp);
    default:
      return run<256>(shape, in, out, log_sum_exp);
  }
}

}  // namespace eaglet::cuda
