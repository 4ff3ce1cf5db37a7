#include <cstring>

#include "ops/bf16_pairs.h"
#include "tensor/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/bf16_pairs_cpu.cc"
// foreach_target compiles this file once per CPU kind and must come before every -inl.h.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace eaglet {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DU = hn::ScalableTag<std::uint32_t>;
using V = hn::Vec<D>;
using VU = hn::Vec<DU>;

// bf16 is the upper half of an fp32: the lower number of a pair is shifted up, the upper one is there
// already.
HWY_INLINE V lower(VU pairs) {
  return hn::BitCast(D(), hn::ShiftLeft<16>(pairs));
}
HWY_INLINE V upper(VU pairs) {
  return hn::BitCast(D(), hn::And(pairs, hn::Set(DU(), 0xffff0000u)));
}
HWY_INLINE VU load_pairs(const std::uint16_t* pairs) {
  return hn::LoadU(DU(), reinterpret_cast<const std::uint32_t*>(pairs));
}
HWY_INLINE VU weight_pair(const std::uint16_t* w) {
  std::uint32_t both;
  std::memcpy(&both, w, sizeof(both));
  return hn::Set(DU(), both);
}

// `kVectors` vectors of columns of `kGroup` sums stay in registers while the rows go by, each read once.
template <int kGroup, int kVectors>
HWY_INLINE void add_columns(std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                            const std::uint16_t* rows, std::int64_t distance, float* y, std::int64_t ldy) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sum[kGroup][kVectors];
  for (int g = 0; g < kGroup; ++g)
    for (int v = 0; v < kVectors; ++v) sum[g][v] = hn::LoadU(d, y + g * ldy + v * lanes);
  for (std::int64_t j = 0; j < pairs; ++j, rows += 2 * distance) {
    VU row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load_pairs(rows + 2 * v * lanes);
    for (int g = 0; g < kGroup; ++g) {
      const VU weights = weight_pair(w + 2 * (g * ldw + j));
      const V first = lower(weights), second = upper(weights);
      for (int v = 0; v < kVectors; ++v)
        sum[g][v] = hn::MulAdd(second, upper(row[v]), hn::MulAdd(first, lower(row[v]), sum[g][v]));
    }
  }
  for (int g = 0; g < kGroup; ++g)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[g][v], d, y + g * ldy + v * lanes);
}

template <int kGroup>
HWY_INLINE void add_pairs_of(std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                             const std::uint16_t* rows, std::int64_t distance, std::int64_t n, float* y,
                             std::int64_t ldy) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes)
    add_columns<kGroup, 4>(pairs, w, ldw, rows + 2 * i, distance, y + i, ldy);
  for (; i + lanes <= n; i += lanes)
    add_columns<kGroup, 1>(pairs, w, ldw, rows + 2 * i, distance, y + i, ldy);
  for (; i < n; ++i)
    for (int g = 0; g < kGroup; ++g)
      for (std::int64_t j = 0; j < pairs; ++j) {
        const std::uint16_t *pair = rows + 2 * (j * distance + i), *weights = w + 2 * (g * ldw + j);
        y[g * ldy + i] += bf16_to_f32(weights[0]) * bf16_to_f32(pair[0]);
        y[g * ldy + i] += bf16_to_f32(weights[1]) * bf16_to_f32(pair[1]);
      }
}

void AddPairs(std::int64_t group, std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
              const std::uint16_t* rows, std::int64_t distance, std::int64_t n, float* y, std::int64_t ldy) {
  for (; group >= 2; group -= 2, w += 2 * 2 * ldw, y += 2 * ldy)
    add_pairs_of<2>(pairs, w, ldw, rows, distance, n, y, ldy);
  if (group == 1) add_pairs_of<1>(pairs, w, ldw, rows, distance, n, y, ldy);
}

}  // namespace HWY_NAMESPACE
}  // namespace eaglet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace eaglet {

HWY_EXPORT(AddPairs);

void add_bf16_pairs_apart(std::int64_t group, std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                          const std::uint16_t* rows, std::int64_t distance, std::int64_t n, float* y,
                          std::int64_t ldy) {
  HWY_DYNAMIC_DISPATCH(AddPairs)(group, pairs, w, ldw, rows, distance, n, y, ldy);
}

}  // namespace eaglet
#endif  // HWY_ONCE
