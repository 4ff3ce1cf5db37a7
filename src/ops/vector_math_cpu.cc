#include <limits>

#include "ops/vector_math.h"

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
HWY_EXPORT(ScaleBy);
HWY_EXPORT(SiluMul);
HWY_EXPORT(SiluMulBackward);
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
void vsoftmax_backward(const float* p, float scale, float delta, std::int64_t n, float* s) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBackward)(p, scale, delta, n, s);
}

}  // namespace eaglet
#endif  // HWY_ONCE
