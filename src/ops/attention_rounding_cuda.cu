#include <algorithm>

#include "ops/attention_tiles_cuda.h"
#include "ops/cuda_dealer.h"

namespace eaglet::cuda {
namespace {

constexpr int kThreads = 256;

// One array [count, heads, D] that becomes [kv_heads, count * (heads / kv_heads), width] in bf16.
struct Rounding {
  const float* from = nullptr;
  std::uint16_t* to = nullptr;
  std::int64_t count = 0, heads = 0;  // no padding: of an argument every byte is looked at (docs/gpu.md)
};
struct Roundings {
  Rounding of[4];
};

// Grid: chunks of all rows x arrays. A thread has one chunk of a row.
__global__ void round_heads(Roundings all, int kv_heads, int head_dim, int width) {
  const Rounding r = all.of[blockIdx.y];
  const int chunks = width / kChunk, group = static_cast<int>(r.heads) / kv_heads;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads, n = r.count * r.heads * chunks;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    const int chunk = static_cast<int>(i % chunks), head = static_cast<int>(i / chunks % r.heads);
    const std::int64_t item = i / chunks / r.heads;
    const float* from = r.from + (item * r.heads + head) * head_dim;
    const auto value = [&](int j) {
      const int column = chunk * kChunk + j;
      return column < head_dim ? from[column] : 0.0f;
    };
    const std::int64_t row = (head / group * r.count + item) * group + head % group;
    int4 packed;
    packed.x = static_cast<int>(pack_bf16(value(0), value(1)));
    packed.y = static_cast<int>(pack_bf16(value(2), value(3)));
    packed.z = static_cast<int>(pack_bf16(value(4), value(5)));
    packed.w = static_cast<int>(pack_bf16(value(6), value(7)));
    *reinterpret_cast<int4*>(r.to + row * width + chunk * kChunk) = packed;
  }
}

__device__ SeenKeys keys_seen(const Call& c, std::int64_t query, std::int64_t first_key) {
  return {static_cast<std::int32_t>(c.first_of(query) - first_key),
          static_cast<std::int32_t>(c.key_of_query[query] - first_key)};
}

__global__ void note_seen_keys(Call c, std::int64_t first_key, SeenKeys* seen) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row < c.rows()) seen[row] = keys_seen(c, c.query_of(row), first_key);
}

// A warp a row of each kv head: delta = <out, d_out>, d_out as it will be multiplied.
__global__ void note_row_facts(Call c, Backward b, std::int64_t first_key, RowFacts* facts) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t kv_head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= c.rows()) return;
  const std::int64_t at = c.at(row, kv_head);
  float part = 0;
  for (int d = lane; d < c.head_dim; d += kWarp)
    part += b.out[at * c.head_dim + d] * low_of(pack_bf16(b.d_out[at * c.head_dim + d], 0.0f));
  const float delta = warp_sum(part);
  if (lane != 0) return;
  b.delta[at] = delta;
  facts[kv_head * c.rows() + row] = {b.log_sum_exp[at] * kLog2E, delta,
                                     keys_seen(c, c.query_of(row), first_key)};
}

std::int32_t* deal(const AttentionShape& shape, const AttentionInputs& in, int width, bool backward,
                   Rounded* r, Backward* b, Dealer* dealer) {
  const std::int64_t of_rows = in.num_queries * shape.num_heads, of_keys = r->keys * shape.num_kv_heads;
  auto* first_key = dealer->deal<std::int32_t>(in.num_queries);
  r->queries = dealer->deal<std::uint16_t>(of_rows * width);
  r->keys0 = dealer->deal<std::uint16_t>(of_keys * width);
  r->values0 = dealer->deal<std::uint16_t>(of_keys * width);
  if (backward) {
    r->d_out = dealer->deal<std::uint16_t>(of_rows * width);
    r->facts = dealer->deal<RowFacts>(of_rows);
    b->delta = dealer->deal<float>(of_rows);
  } else {
    r->seen = dealer->deal<SeenKeys>(r->rows);
  }
  return first_key;
}

}  // namespace

bool round_operands(const AttentionShape& shape, const AttentionInputs& in, int width, bool backward, Call* c,
                    Rounded* r, Backward* b) {
  const KeyRange keys = all_keys(in);
  r->rows = static_cast<int>(in.num_queries * (shape.num_heads / shape.num_kv_heads));
  r->keys = static_cast<int>(keys.end - keys.begin);
  r->first_key = keys.begin;
  Dealer counter(nullptr);
  deal(shape, in, width, backward, r, b, &counter);
  auto* block = static_cast<char*>(op_scratch(counter.bytes()));
  if (block == nullptr) return false;
  Dealer dealer(block);
  *c = make_call(shape, in, deal(shape, in, width, backward, r, b, &dealer));
  const std::int64_t at = keys.begin * shape.num_kv_heads * shape.head_dim;
  const std::int64_t heads = shape.num_heads, kv_heads = shape.num_kv_heads;
  const Roundings all = {{{in.queries, r->queries, in.num_queries, heads},
                          {in.keys0 + at, r->keys0, r->keys, kv_heads},
                          {in.values0 + at, r->values0, r->keys, kv_heads},
                          {b->d_out, r->d_out, in.num_queries, heads}}};
  const std::int64_t most =
      std::max(in.num_queries * heads, std::int64_t{r->keys} * kv_heads) * (width / kChunk);
  launch("attention: rounding", round_heads, dim3(blocks_for(most, kThreads), backward ? 4 : 3),
         dim3(kThreads), all, static_cast<int>(kv_heads), c->head_dim, width);
  if (backward)
    launch("attention_backward: facts of rows", note_row_facts,
           dim3(static_cast<unsigned>((r->rows + kThreads / kWarp - 1) / (kThreads / kWarp)),
                static_cast<unsigned>(kv_heads)),
           dim3(kThreads), *c, *b, keys.begin, r->facts);
  else
    launch("attention: seen keys", note_seen_keys,
           dim3(static_cast<unsigned>((r->rows + kThreads - 1) / kThreads)), dim3(kThreads), *c, keys.begin,
           r->seen);
  return true;
}

}  // namespace eaglet::cuda
