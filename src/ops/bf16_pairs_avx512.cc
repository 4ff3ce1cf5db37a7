#include <cstring>

#include "ops/bf16_pairs.h"

// Highway 1.0 does not know this instruction, so it stands here by its own name.
#if defined(__x86_64__)
#include <immintrin.h>

#define EAGLET_BF16_PAIRS __attribute__((target("avx512f,avx512vl,avx512bf16")))

namespace eaglet {
namespace {

constexpr std::int64_t kLanes = 16;

// One weight pair in all lanes.
EAGLET_BF16_PAIRS inline __m512i weight_pair(const std::uint16_t* w) {
  int both;
  std::memcpy(&both, w, sizeof(both));
  return _mm512_set1_epi32(both);
}

EAGLET_BF16_PAIRS inline __m512 add_product(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

/// Four vectors of sums of one weight row. By name, not in an array: GCC 12 would keep an array in memory.
struct FourSums {
  __m512 a, b, c, d;
};

EAGLET_BF16_PAIRS inline FourSums load_sums(const float* y) {
  return {_mm512_loadu_ps(y), _mm512_loadu_ps(y + kLanes), _mm512_loadu_ps(y + 2 * kLanes),
          _mm512_loadu_ps(y + 3 * kLanes)};
}
EAGLET_BF16_PAIRS inline void store_sums(const FourSums& sums, float* y) {
  _mm512_storeu_ps(y, sums.a);
  _mm512_storeu_ps(y + kLanes, sums.b);
  _mm512_storeu_ps(y + 2 * kLanes, sums.c);
  _mm512_storeu_ps(y + 3 * kLanes, sums.d);
}

struct FourRows {
  __m512i a, b, c, d;
};
EAGLET_BF16_PAIRS inline FourRows load_rows(const std::uint16_t* rows) {
  return {_mm512_loadu_si512(rows), _mm512_loadu_si512(rows + 2 * kLanes),
          _mm512_loadu_si512(rows + 4 * kLanes), _mm512_loadu_si512(rows + 6 * kLanes)};
}

EAGLET_BF16_PAIRS inline void add_products(const std::uint16_t* w, const FourRows& rows, FourSums* sums) {
  const __m512i weights = weight_pair(w);
  sums->a = add_product(sums->a, weights, rows.a);
  sums->b = add_product(sums->b, weights, rows.b);
  sums->c = add_product(sums->c, weights, rows.c);
  sums->d = add_product(sums->d, weights, rows.d);
}

// 64 columns of the sums of kGroup weight rows, which stay in registers while the rows go by, each read once.
template <int kGroup>
EAGLET_BF16_PAIRS inline void add_64_columns(std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                                             const std::uint16_t* rows, std::int64_t distance, float* y,
                                             std::int64_t ldy) {
  FourSums first = load_sums(y), second = {}, third = {}, fourth = {};
  if constexpr (kGroup > 1) second = load_sums(y + ldy);
  if constexpr (kGroup > 2) third = load_sums(y + 2 * ldy);
  if constexpr (kGroup > 3) fourth = load_sums(y + 3 * ldy);
  for (std::int64_t j = 0; j < pairs; ++j, rows += 2 * distance, w += 2) {
    const FourRows now = load_rows(rows);
    add_products(w, now, &first);
    if constexpr (kGroup > 1) add_products(w + 2 * ldw, now, &second);
    if constexpr (kGroup > 2) add_products(w + 4 * ldw, now, &third);
    if constexpr (kGroup > 3) add_products(w + 6 * ldw, now, &fourth);
  }
  store_sums(first, y);
  if constexpr (kGroup > 1) store_sums(second, y + ldy);
  if constexpr (kGroup > 2) store_sums(third, y + 2 * ldy);
  if constexpr (kGroup > 3) store_sums(fourth, y + 3 * ldy);
}

// The columns of `mask`, at most 16, of one weight row.
EAGLET_BF16_PAIRS inline void add_few_columns(std::int64_t pairs, const std::uint16_t* w,
                                              const std::uint16_t* rows, std::int64_t distance,
                                              __mmask16 mask, float* y) {
  __m512 sum = _mm512_maskz_loadu_ps(mask, y);
  for (std::int64_t j = 0; j < pairs; ++j, rows += 2 * distance, w += 2)
    sum = add_product(sum, weight_pair(w), _mm512_maskz_loadu_epi32(mask, rows));
  _mm512_mask_storeu_ps(y, mask, sum);
}

template <int kGroup>
EAGLET_BF16_PAIRS void add_pairs_of(std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                                    const std::uint16_t* rows, std::int64_t distance, std::int64_t n,
                                    float* y, std::int64_t ldy) {
  constexpr __mmask16 kAll = 0xffff;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    add_64_columns<kGroup>(pairs, w, ldw, rows + 2 * i, distance, y + i, ldy);
  for (; i < n; i += kLanes) {
    const auto mask = n - i >= kLanes ? kAll : static_cast<__mmask16>((1u << (n - i)) - 1);
    for (int g = 0; g < kGroup; ++g)
      add_few_columns(pairs, w + 2 * g * ldw, rows + 2 * i, distance, mask, y + g * ldy + i);
  }
}

}  // namespace

bool multiplies_bf16_pairs() {
  static const bool it_does = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl");
  return it_does;
}

void add_bf16_pairs(std::int64_t group, std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                    const std::uint16_t* rows, std::int64_t distance, std::int64_t n, float* y,
                    std::int64_t ldy) {
  if (!multiplies_bf16_pairs()) return add_bf16_pairs_apart(group, pairs, w, ldw, rows, distance, n, y, ldy);
  for (; group >= 4; group -= 4, w += 2 * 4 * ldw, y += 4 * ldy)
    add_pairs_of<4>(pairs, w, ldw, rows, distance, n, y, ldy);
  if (group == 3) add_pairs_of<3>(pairs, w, ldw, rows, distance, n, y, ldy);
  if (group == 2) add_pairs_of<2>(pairs, w, ldw, rows, distance, n, y, ldy);
  if (group == 1) add_pairs_of<1>(pairs, w, ldw, rows, distance, n, y, ldy);
}

}  // namespace eaglet

#else

namespace eaglet {

bool multiplies_bf16_pairs() {
  return false;
}
void add_bf16_pairs(std::int64_t group, std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                    const std::uint16_t* rows, std::int64_t distance, std::int64_t n, float* y,
                    std::int64_t ldy) {
  add_bf16_pairs_apart(group, pairs, w, ldw, rows, distance, n, y, ldy);
}

}  // namespace eaglet

#endif
