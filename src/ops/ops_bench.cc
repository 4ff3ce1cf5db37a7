// Micro-benchmarks of the ops at the shape of SmolLM2's draft (H 576, 9/3 heads of 64, MLP 1536, Vd 16384),
// warm caches.
//   cmake --preset dev && cmake --build --preset dev --target ops_bench && build/dev/src/ops_bench
// Each reports flop/s or bytes/s beside time; compare with BM_Gemm, this machine's GEMM rate in the same run.

#include <benchmark/benchmark.h>

#include <numeric>

#include "device/threads.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/ops_test_util.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace eaglet {
namespace {

using test::random_floats;

constexpr std::int64_t kHidden = 576, kHeads = 9, kKvHeads = 3, kHeadDim = 64, kIntermediate = 1536;

void rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] = benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate,
                                            benchmark::Counter::kIs1000);
}

// Bound: arithmetic.
void BM_Gemm(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const std::vector<float> a = random_floats(n * n, 1), b = random_floats(n * n, 2);
  std::vector<float> c(a.size());
  for (auto _ : state) linear(n, n, n, a.data(), b.data(), n, false, c.data());
  rate(state, "flop/s", 2.0 * static_cast<double>(n * n * n));
}
BENCHMARK(BM_Gemm)->Arg(1024)->Unit(benchmark::kMillisecond)->UseRealTime();

// Bound: arithmetic, small matrices (a block of 192 rows, 64 wide heads).
void BM_Attention(benchmark::State& state) {
  const std::int64_t length = state.range(0);
  const bool backward = state.range(1) != 0;
  const AttentionShape shape{kHeads, kKvHeads, kHeadDim, 0};
  const std::vector<float> q = random_floats(length * kHeads * kHeadDim, 1),
                           k = random_floats(length * kKvHeads * kHeadDim, 2);
  std::vector<std::int32_t> key(static_cast<std::size_t>(length));
  std::iota(key.begin(), key.end(), 0);
  const auto end = static_cast<std::int32_t>(length);
  const std::vector<AttentionSpan> spans = {{0, end, 0, end}};
  const AttentionInputs in{length,   &spans, key.data(), q.data(), k.data(),
                           k.data(), 0,      nullptr,    nullptr,  nullptr};
  const std::int64_t per_thread = attention_scratch_floats(shape, length, 0);
  std::vector<float> scratch(static_cast<std::size_t>(per_thread * num_threads())), out(q.size()),
      dq(q.size());
  std::vector<float> lse(static_cast<std::size_t>(length * kHeads)), dk(k.size()), dv(k.size());
  attention(shape, in, out.data(), lse.data(), scratch.data(), per_thread);
  for (auto _ : state) {
    if (backward)
      attention_backward(shape, in, out.data(), lse.data(),
                         {q.data(), dq.data(), dk.data(), dv.data(), nullptr, nullptr}, scratch.data(),
                         per_thread);
    else
      attention(shape, in, out.data(), lse.data(), scratch.data(), per_thread);
  }
  const double product =
      static_cast<double>(length * (length + 1) * kHeads * kHeadDim);  // one GEMM over the causal half
  rate(state, "flop/s", product * (backward ? 5 : 2));
}
BENCHMARK(BM_Attention)
    ->ArgsProduct({{512, 2048}, {0, 1}})
    ->ArgNames({"T", "backward"})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// A new token of one sequence over what was kept of `rows` tokens. Bound: memory once the rows leave the
// cache.
void BM_CachedAttention(benchmark::State& state) {
  const std::int64_t rows = state.range(0), group = kHeads / kKvHeads;
  const bool bf16 = state.range(1) != 0;
  std::vector<std::uint16_t> keys(static_cast<std::size_t>(2 * rows * kHeadDim)), values(keys.size());
  const CachedHead head{bf16, kHeadDim, keys.data(), values.data()};
  const std::vector<float> q = random_floats(group * kHeadDim, 1);
  std::vector<float> out(q.size()),
      scratch(static_cast<std::size_t>(cached_attention_scratch_floats(kHeadDim, group, rows)));
  for (auto _ : state) cached_attention(head, group, 0, rows, q.data(), out.data(), scratch.data());
  rate(state, "flop/s", 4.0 * static_cast<double>(rows * group * kHeadDim));
  rate(state, "bytes/s", (bf16 ? 4.0 : 8.0) * static_cast<double>(rows * kHeadDim));
}
BENCHMARK(BM_CachedAttention)->ArgsProduct({{512, 4096}, {0, 1}})->ArgNames({"rows", "bf16"})->UseRealTime();

// Bound: arithmetic (three GEMMs of 576 x 16384 a stacked row), one exp a logit.
void BM_HeadLoss(benchmark::State& state) {
  const std::int64_t rows = 512, vocab = 16384;
  const bool train_head = state.range(0) != 0;
  const HeadLossShape shape{kHidden, kHidden, vocab, 3, 0};
  const std::vector<float> states = random_floats(rows * kHidden, 1),
                           head = random_floats(vocab * kHidden, 2, 0.02);
  std::vector<std::int32_t> teacher(static_cast<std::size_t>(rows)), best(teacher), teacher_best(teacher);
  std::iota(teacher.begin(), teacher.end(), 0);
  const std::vector<float> weight(static_cast<std::size_t>(rows), 1e-3f);
  std::vector<std::vector<float>> d_xs(3, std::vector<float>(states.size()));
  std::vector<float> loss(static_cast<std::size_t>(rows)), d_head(head.size());
  const ComputeType type = state.range(1) != 0 ? ComputeType::kBf16 : ComputeType::kF32;
  ProductWorkspace products;
  LinearWeight teacher_head(vocab, kHidden, kHidden, {ComputeType::kF32, true, false}, &products);
  LinearWeight draft_head(vocab, kHidden, kHidden, {type, true, true}, &products);
  teacher_head.load(head.data());
  draft_head.load(head.data());
  HeadLossInputs in;
  in.num_teachers = rows;
  in.teacher_states = states.data();
  in.verifier_head = &teacher_head;
  in.head = &draft_head;
  HeadLossOutputs out;
  out.teacher_best = teacher_best.data();
  out.d_head = train_head ? d_head.data() : nullptr;
  for (std::size_t k = 0; k < 3; ++k) {
    in.xs.push_back(states.data());
    in.teacher.push_back(&teacher);
    in.weight.push_back(&weight);
    out.loss.push_back(loss.data());
    out.best.push_back(best.data());
    out.d_xs.push_back(d_xs[k].data());
  }
  std::vector<float> scratch(static_cast<std::size_t>(head_loss_scratch_floats(shape, num_threads())));
  HeadLossWorkspace workspace;
  for (auto _ : state) head_loss(shape, {LossTerm{}}, in, out, scratch.data(), &workspace);
  rate(state, "flop/s", 2.0 * static_cast<double>(rows * kHidden * vocab) * (1 + 3 * (train_head ? 3 : 2)));
}
BENCHMARK(BM_HeadLoss)
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->ArgNames({"train_head", "bf16"})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// Bound: memory (two reads, one write a value; backward three reads, one write).
void BM_RmsNorm(benchmark::State& state) {
  const std::int64_t rows = 4096;
  const std::vector<float> x = random_floats(rows * kHidden, 1), w = random_floats(kHidden, 2);
  std::vector<float> y(x.size()), inv(static_cast<std::size_t>(rows));
  for (auto _ : state)
    rms_norm(rows, kHidden, x.data(), kHidden, w.data(), 1e-5, y.data(), kHidden, inv.data());
  rate(state, "bytes/s", 2.0 * sizeof(float) * static_cast<double>(rows * kHidden));
}
BENCHMARK(BM_RmsNorm)->Unit(benchmark::kMicrosecond)->UseRealTime();

void BM_RmsNormBackward(benchmark::State& state) {
  const std::int64_t rows = 4096;
  const std::vector<float> x = random_floats(rows * kHidden, 1), w = random_floats(kHidden, 2),
                           inv(static_cast<std::size_t>(rows), 1.0f);
  std::vector<float> dx(x.size()), dw(w.size()), partial(static_cast<std::size_t>(num_threads() * kHidden));
  for (auto _ : state)
    rms_norm_backward(rows, kHidden, x.data(), w.data(), inv.data(), x.data(), false, dx.data(), dw.data(),
                      partial.data());
  rate(state, "bytes/s", 3.0 * sizeof(float) * static_cast<double>(rows * kHidden));
}
BENCHMARK(BM_RmsNormBackward)->Unit(benchmark::kMicrosecond)->UseRealTime();

// Bound: one exp a value when the arrays sit in the cache, memory when they do not.
void BM_Swiglu(benchmark::State& state) {
  const std::int64_t rows = 1024;
  std::vector<float> gate = random_floats(rows * kIntermediate, 1),
                     up = random_floats(rows * kIntermediate, 2), act(gate.size());
  for (auto _ : state) swiglu(rows, kIntermediate, gate.data(), up.data(), act.data());
  rate(state, "bytes/s", 3.0 * sizeof(float) * static_cast<double>(rows * kIntermediate));
}
BENCHMARK(BM_Swiglu)->Unit(benchmark::kMicrosecond)->UseRealTime();

// Bound: memory.
void BM_RopeRotate(benchmark::State& state) {
  const std::int64_t rows = 2048, half = kHeadDim / 2;
  std::vector<float> x = random_floats(rows * kHeads * kHeadDim, 1);
  const std::vector<float> cos(static_cast<std::size_t>(rows * half), 1.0f), sin(cos.size(), 0.0f);
  for (auto _ : state) rope_rotate(rows, kHeads, half, cos.data(), sin.data(), x.data());
  rate(state, "bytes/s", 2.0 * sizeof(float) * static_cast<double>(x.size()));
}
BENCHMARK(BM_RopeRotate)->Unit(benchmark::kMicrosecond)->UseRealTime();

// Bound: memory (four reads, three writes a parameter).
void BM_Adamw(benchmark::State& state) {
  const std::int64_t n = 14'000'000;
  std::vector<float> w = random_floats(n, 1), g = w, m(w.size()), v(w.size());
  std::int64_t update = 0;
  for (auto _ : state) adamw(n, w.data(), g.data(), m.data(), v.data(), 1.0, 1e-4, ++update, {});
  rate(state, "bytes/s", 7.0 * sizeof(float) * static_cast<double>(n));
}
BENCHMARK(BM_Adamw)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace eaglet
