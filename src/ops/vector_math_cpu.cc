#include <limits>

#include "ops/vector_math.h"
#include "tensor/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/vector_math_cpu.cc"
// foreach_target compiles this file once per CPU kind and must come before every -inl.h.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace eaglet {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Runs body(i) on whole vectors; tail(i) on the elements that are left.
template <class Body, class Tail>
HWY_INLINE void for_each(std::int64_t n, const Body& body, const Tail& tail) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i);
  for (; i < n; ++i) tail(i);
}

HWY_INLINE float sum_lanes(V v) {
  return hn::GetLane(hn::SumOfLanes(D(), v));
}

// exp of one scalar by the same polynomial as the vectors, so that a tail element has the bits of a body
// element.
HWY_INLINE float exp_one(float x) {
  return hn::GetLane(hn::Exp(D(), hn::Set(D(), x)));
}

HWY_INLINE V sigmoid(V g) {
  const D d;
  // Highway's Exp takes at most 104: beyond that it gives NaN. exp(88) is as large as fp32 can hold.
  const V negated = hn::Min(hn::Neg(g), hn::Set(d, 88.0f));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), hn::Exp(d, negated)));
}
HWY_INLINE float sigmoid_one(float g) {
  return hn::GetLane(sigmoid(hn::Set(D(), g)));
}

float Max(const float* x, std::int64_t n) {
  const D d;
  V best = hn::Set(d, -std::numeric_limits<float>::infinity());
  float tail_best = -std::numeric_limits<float>::infinity();
  for_each(
      n, [&](std::int64_t i) HWY_ATTR { best = hn::Max(best, hn::LoadU(d, x + i)); },
      [&](std::int64_t i) { tail_best = x[i] > tail_best ? x[i] : tail_best; });
  const float body_best = hn::GetLane(hn::MaxOfLanes(d, best));
  return body_best > tail_best ? body_best : tail_best;
}

float ExpSum(const float* x, std::int64_t n, float scale, float shift, float* y) {
  const D d;
  const V vscale = hn::Set(d, scale), vshift = hn::Set(d, shift);
  V sum = hn::Zero(d);
  float tail_sum = 0;
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V e = hn::Exp(d, hn::MulSub(vscale, hn::LoadU(d, x + i), vshift));
        hn::StoreU(e, d, y + i);
        sum = hn::Add(sum, e);
      },
      [&](std::int64_t i) HWY_ATTR { tail_sum += y[i] = exp_one(scale * x[i] - shift); });
  return sum_lanes(sum) + tail_sum;
}

float Dot(const float* x, const float* y, std::int64_t n) {
  const D d;
  V sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes), sum1);
  }
  float tail_sum = 0;
  for (; i < n; ++i) tail_sum += x[i] * y[i];
  return sum_lanes(hn::Add(sum0, sum1)) + tail_sum;
}

float Dot3(const float* x, const float* y, const float* w, std::int64_t n) {
  const D d;
  V sum = hn::Zero(d);
  float tail_sum = 0;
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        sum = hn::MulAdd(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), hn::LoadU(d, w + i), sum);
      },
      [&](std::int64_t i) { tail_sum += x[i] * y[i] * w[i]; });
  return sum_lanes(sum) + tail_sum;
}

HWY_INLINE V load_row(const float* x) {
  return hn::LoadU(D(), x);
}
HWY_INLINE V load_row(const std::uint16_t* x) {  // bf16: the upper half of an fp32
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> d16;
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, x))));
}
HWY_INLINE float load_one(float x) {
  return x;
}
HWY_INLINE float load_one(std::uint16_t x) {
  return bf16_to_f32(x);
}

// `kVectors` vectors of columns of `kGroup` sums stay in registers while the rows go by, each read once.
template <int kGroup, int kVectors, class Row>
HWY_INLINE void add_columns(std::int64_t k, const float* w, std::int64_t ldw, const Row* rows, std::int64_t n,
                            float* y, std::int64_t ldy) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sum[kGroup][kVectors];
  for (int g = 0; g < kGroup; ++g)
    for (int v = 0; v < kVectors; ++v) sum[g][v] = hn::LoadU(d, y + g * ldy + v * lanes);
  for (std::int64_t j = 0; j < k; ++j, rows += n) {
    V row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load_row(rows + v * lanes);
    for (int g = 0; g < kGroup; ++g) {
      const V weight = hn::Set(d, w[g * ldw + j]);
      for (int v = 0; v < kVectors; ++v) sum[g][v] = hn::MulAdd(weight, row[v], sum[g][v]);
    }
  }
  for (int g = 0; g < kGroup; ++g)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[g][v], d, y + g * ldy + v * lanes);
}

template <int kGroup, class Row>
HWY_INLINE void add_rows_of(std::int64_t k, const float* w, std::int64_t ldw, const Row* rows, std::int64_t n,
                            float* y, std::int64_t ldy) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) add_columns<kGroup, 4>(k, w, ldw, rows + i, n, y + i, ldy);
  for (; i + lanes <= n; i += lanes) add_columns<kGroup, 1>(k, w, ldw, rows + i, n, y + i, ldy);
  for (; i < n; ++i)
    for (int g = 0; g < kGroup; ++g)
      for (std::int64_t j = 0; j < k; ++j) y[g * ldy + i] += w[g * ldw + j] * load_one(rows[j * n + i]);
}

template <class Row>
HWY_INLINE void add_rows(std::int64_t group, std::int64_t k, const float* w, std::int64_t ldw,
                         const Row* rows, std::int64_t n, float* y, std::int64_t ldy) {
  for (; group >= 4; group -= 4, w += 4 * ldw, y += 4 * ldy) add_rows_of<4>(k, w, ldw, rows, n, y, ldy);
  if (group == 3) add_rows_of<3>(k, w, ldw, rows, n, y, ldy);
  if (group == 2) add_rows_of<2>(k, w, ldw, rows, n, y, ldy);
  if (group == 1) add_rows_of<1>(k, w, ldw, rows, n, y, ldy);
}

void AddRows(std::int64_t group, std::int64_t k, const float* w, std::int64_t ldw, const float* rows,
             std::int64_t n, float* y, std::int64_t ldy) {
  add_rows(group, k, w, ldw, rows, n, y, ldy);
}
void AddBf16Rows(std::int64_t group, std::int64_t k, const float* w, std::int64_t ldw,
                 const std::uint16_t* rows, std::int64_t n, float* y, std::int64_t ldy) {
  add_rows(group, k, w, ldw, rows, n, y, ldy);
}

void Axpby(float a, const float* x, float b, std::int64_t n, float* y) {
  const D d;
  const V va = hn::Set(d, a), vb = hn::Set(d, b);
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        hn::StoreU(hn::MulAdd(va, hn::LoadU(d, x + i), hn::Mul(vb, hn::LoadU(d, y + i))), d, y + i);
      },
      [&](std::int64_t i) { y[i] = a * x[i] + b * y[i]; });
}

void Axpy(float a, const float* x, std::int64_t n, float* y) {
  const D d;
  const V va = hn::Set(d, a);
  for_each(
      n,
      [&](std::int64_t i)
          HWY_ATTR { hn::StoreU(hn::MulAdd(va, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i); },
      [&](std::int64_t i) { y[i] += a * x[i]; });
}

void ScaleBy(float a, const float* x, const float* w, std::int64_t n, float* y) {
  const D d;
  const V va = hn::Set(d, a);
  for_each(
      n,
      [&](std::int64_t i)
          HWY_ATTR { hn::StoreU(hn::Mul(hn::Mul(va, hn::LoadU(d, x + i)), hn::LoadU(d, w + i)), d, y + i); },
      [&](std::int64_t i) { y[i] = a * x[i] * w[i]; });
}

void SiluMul(const float* g, const float* u, std::int64_t n, float* y) {
  const D d;
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V vg = hn::LoadU(d, g + i);
        hn::StoreU(hn::Mul(hn::Mul(vg, sigmoid(vg)), hn::LoadU(d, u + i)), d, y + i);
      },
      [&](std::int64_t i) HWY_ATTR { y[i] = g[i] * sigmoid_one(g[i]) * u[i]; });
}

void SiluMulBackward(const float* g, const float* u, const float* dy, std::int64_t n, float* dg, float* du,
                     float* y) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V vg = hn::LoadU(d, g + i), vu = hn::LoadU(d, u + i), vdy = hn::LoadU(d, dy + i);
        const V s = sigmoid(vg), silu = hn::Mul(vg, s);
        // silu'(g) = s * (1 + g * (1 - s))
        const V slope = hn::Mul(s, hn::MulAdd(vg, hn::Sub(one, s), one));
        hn::StoreU(hn::Mul(hn::Mul(vdy, vu), slope), d, dg + i);
        hn::StoreU(hn::Mul(vdy, silu), d, du + i);
        hn::StoreU(hn::Mul(silu, vu), d, y + i);
      },
      [&](std::int64_t i) HWY_ATTR {
        const float vg = g[i], vu = u[i], s = sigmoid_one(vg), silu = vg * s;
        dg[i] = dy[i] * vu * (s * (1.0f + vg * (1.0f - s)));
        du[i] = dy[i] * silu;
        y[i] = silu * vu;
      });
}

Overlap SumOverlap(const float* p, float scale, std::int64_t n, float* q) {
  const D d;
  const V vscale = hn::Set(d, scale);
  V overlap = hn::Zero(d), below = hn::Zero(d);
  Overlap tail;
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V vp = hn::LoadU(d, p + i), vq = hn::Mul(vscale, hn::LoadU(d, q + i));
        hn::StoreU(vq, d, q + i);
        overlap = hn::Add(overlap, hn::Min(vp, vq));
        below = hn::Add(below, hn::IfThenElseZero(hn::Lt(vq, vp), vq));
      },
      [&](std::int64_t i) {
        q[i] *= scale;
        tail.overlap += q[i] < p[i] ? q[i] : p[i];
        tail.mass_below += q[i] < p[i] ? q[i] : 0.0f;
      });
  return {sum_lanes(overlap) + tail.overlap, sum_lanes(below) + tail.mass_below};
}

void OverlapMix(float a, const float* q, float b, const float* p, float c, std::int64_t n, float* y) {
  const D d;
  const V va = hn::Set(d, a), vb = hn::Set(d, b), vac = hn::Set(d, a + c);
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V vp = hn::LoadU(d, p + i), vq = hn::LoadU(d, q + i);
        hn::StoreU(hn::MulAdd(hn::IfThenElse(hn::Lt(vq, vp), vac, va), vq, hn::Mul(vb, vp)), d, y + i);
      },
      [&](std::int64_t i) { y[i] = (q[i] < p[i] ? a + c : a) * q[i] + b * p[i]; });
}

void AddLogRatio(float w, const float* q, const float* z, const float* t, float shift, std::int64_t n,
                 float* y) {
  const D d;
  const V vw = hn::Set(d, w), vshift = hn::Set(d, shift);
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V ratio = hn::Sub(hn::Sub(hn::LoadU(d, z + i), hn::LoadU(d, t + i)), vshift);
        hn::StoreU(hn::MulAdd(hn::Mul(vw, hn::LoadU(d, q + i)), ratio, hn::LoadU(d, y + i)), d, y + i);
      },
      [&](std::int64_t i) { y[i] += w * q[i] * (z[i] - t[i] - shift); });
}

HWY_INLINE V log_mean(V p, V q) {
  const D d;
  return hn::Log(d, hn::Max(hn::Mul(hn::Set(d, 0.5f), hn::Add(p, q)), hn::Set(d, 1e-38f)));
}
HWY_INLINE float log_mean_one(float p, float q) {
  return hn::GetLane(log_mean(hn::Set(D(), p), hn::Set(D(), q)));
}

LogMean SumLogMean(const float* p, const float* q, std::int64_t n) {
  const D d;
  V by_q = hn::Zero(d), by_p = hn::Zero(d);
  LogMean tail;
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V vp = hn::LoadU(d, p + i), vq = hn::LoadU(d, q + i), log_m = log_mean(vp, vq);
        by_q = hn::MulAdd(vq, log_m, by_q);
        by_p = hn::MulAdd(vp, log_m, by_p);
      },
      [&](std::int64_t i) HWY_ATTR {
        const float log_m = log_mean_one(p[i], q[i]);
        tail.by_q += q[i] * log_m;
        tail.by_p += p[i] * log_m;
      });
  return {sum_lanes(by_q) + tail.by_q, sum_lanes(by_p) + tail.by_p};
}

void AddLogMean(float w, const float* q, const float* z, const float* p, float shift, std::int64_t n,
                float* y) {
  const D d;
  const V vw = hn::Set(d, w), vshift = hn::Set(d, shift);
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V vq = hn::LoadU(d, q + i);
        const V ratio = hn::Sub(hn::Sub(hn::LoadU(d, z + i), log_mean(hn::LoadU(d, p + i), vq)), vshift);
        hn::StoreU(hn::MulAdd(hn::Mul(vw, vq), ratio, hn::LoadU(d, y + i)), d, y + i);
      },
      [&](std::int64_t i) HWY_ATTR { y[i] += w * q[i] * (z[i] - log_mean_one(p[i], q[i]) - shift); });
}

void SoftmaxBackward(const float* p, float scale, float delta, std::int64_t n, float* s) {
  const D d;
  const V vscale = hn::Set(d, scale), vdelta = hn::Set(d, delta);
  for_each(
      n,
      [&](std::int64_t i) HWY_ATTR {
        const V ds = hn::Mul(hn::Mul(vscale, hn::LoadU(d, p + i)), hn::Sub(hn::LoadU(d, s + i), vdelta));
        hn::StoreU(ds, d, s + i);
      },
      [&](std::int64_t i) { s[i] = scale * p[i] * (s[i] - delta); });
}

}  // namespace HWY_NAMESPACE
}  // namespace eaglet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace eaglet {

HWY_EXPORT(Max);
HWY_EXPORT(ExpSum);
HWY_EXPORT(Dot);
HWY_EXPORT(Dot3);
HWY_EXPORT(Axpy);
HWY_EXPORT(Axpby);
HWY_EXPORT(AddRows);
HWY_EXPORT(AddBf16Rows);
HWY_EXPORT(ScaleBy);
HWY_EXPORT(SiluMul);
HWY_EXPORT(SiluMulBackward);
HWY_EXPORT(SumOverlap);
HWY_EXPORT(OverlapMix);
HWY_EXPORT(AddLogRatio);
HWY_EXPORT(SumLogMean);
HWY_EXPORT(AddLogMean);
HWY_EXPORT(SoftmaxBackward);

float vmax(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Max)(x, n);
}

std::int64_t vargmax(const float* x, std::int64_t n) {
  const float best = vmax(x, n);
  for (std::int64_t i = 0; i < n; ++i)
    if (x[i] == best) return i;
  return 0;
}

float vexp_sum(const float* x, std::int64_t n, float scale, float shift, float* y) {
  return HWY_DYNAMIC_DISPATCH(ExpSum)(x, n, scale, shift, y);
}
float vdot(const float* x, const float* y, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Dot)(x, y, n);
}
float vsum_squares(const float* x, std::int64_t n) {
  return vdot(x, x, n);
}
void vaxpy(float a, const float* x, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(Axpy)(a, x, n, y);
}
void vaxpby(float a, const float* x, float b, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(Axpby)(a, x, b, n, y);
}
void vadd_rows(std::int64_t group, std::int64_t k, const float* w, std::int64_t ldw, const float* rows,
               std::int64_t n, float* y, std::int64_t ldy) {
  HWY_DYNAMIC_DISPATCH(AddRows)(group, k, w, ldw, rows, n, y, ldy);
}
void vadd_rows(std::int64_t group, std::int64_t k, const float* w, std::int64_t ldw,
               const std::uint16_t* rows, std::int64_t n, float* y, std::int64_t ldy) {
  HWY_DYNAMIC_DISPATCH(AddBf16Rows)(group, k, w, ldw, rows, n, y, ldy);
}
void vscale_by(float a, const float* x, const float* w, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(ScaleBy)(a, x, w, n, y);
}
float vdot3(const float* x, const float* y, const float* w, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Dot3)(x, y, w, n);
}
void vsilu_mul(const float* g, const float* u, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(SiluMul)(g, u, n, y);
}
void vsilu_mul_backward(const float* g, const float* u, const float* dy, std::int64_t n, float* dg, float* du,
                        float* y) {
  HWY_DYNAMIC_DISPATCH(SiluMulBackward)(g, u, dy, n, dg, du, y);
}
Overlap voverlap(const float* p, float scale, std::int64_t n, float* q) {
  return HWY_DYNAMIC_DISPATCH(SumOverlap)(p, scale, n, q);
}
void voverlap_mix(float a, const float* q, float b, const float* p, float c, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(OverlapMix)(a, q, b, p, c, n, y);
}
void vadd_log_ratio(float w, const float* q, const float* z, const float* t, float shift, std::int64_t n,
                    float* y) {
  HWY_DYNAMIC_DISPATCH(AddLogRatio)(w, q, z, t, shift, n, y);
}
LogMean vlog_mean(const float* p, const float* q, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SumLogMean)(p, q, n);
}
void vadd_log_mean(float w, const float* q, const float* z, const float* p, float shift, std::int64_t n,
                   float* y) {
  HWY_DYNAMIC_DISPATCH(AddLogMean)(w, q, z, p, shift, n, y);
}
void vsoftmax_backward(const float* p, float scale, float delta, std::int64_t n, float* s) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBackward)(p, scale, delta, n, s);
}

}  // namespace eaglet
#endif  // HWY_ONCE
