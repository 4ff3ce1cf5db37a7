#include "device/bf16_rounding.h"

#include "device/threads.h"
#include "tensor/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/bf16_rounding.cc"
// foreach_target compiles this file once per CPU kind and must come before every -inl.h.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace eaglet {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void RoundRow(std::int64_t n, const float* from, std::uint16_t* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::BitCast(du, hn::LoadU(d, from + i));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
    // By bits: Highway's comparisons of floats are ordered, so a NaN would not differ from itself.
    const hn::RebindToSigned<decltype(d)> di;
    const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7fffffffu)));
    const auto is_nan = hn::RebindMask(du, hn::Gt(magnitude, hn::Set(di, 0x7f800000)));
    hn::StoreU(hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet, rounded)), d16, to + i);
  }
  for (; i < n; ++i) to[i] = f32_to_bf16(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace eaglet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace eaglet {
HWY_EXPORT(RoundRow);

void round_row_to_bf16(std::int64_t n, const float* from, std::uint16_t* to) {
  HWY_DYNAMIC_DISPATCH(RoundRow)(n, from, to);
}

void round_to_bf16(std::int64_t n, const float* from, std::uint16_t* to) {
  constexpr std::int64_t kGrain = 16384;
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(RoundRow)(end - begin, from + begin, to + begin);
  });
}

}  // namespace eaglet
#endif
