#pragma once

#include <cstdint>

namespace eaglet {

/// Sums over pairs of bf16 numbers, as processors with avx512_bf16 multiply them: two products and a sum of
/// fp32 in one instruction. Elsewhere the pairs are taken apart; the numbers are the same up to the order of
/// sums (and where a product is denormal: the instruction takes it as zero).
///
/// Row j of `rows` holds the numbers of rows 2j and 2j+1 of a matrix, side by side: element i is at
/// rows[(j * distance + i) * 2] and the one after it. The weights lie in pairs the same way.
///
/// y [group, n] += w [group, 2 * pairs] * rows [2 * pairs, n]. w has rows 2 * ldw numbers apart, y ldy.
/// Reference: plain loops in bf16_pairs_test.cc.
void add_bf16_pairs(std::int64_t group, std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                    const std::uint16_t* rows, std::int64_t distance, std::int64_t n, float* y,
                    std::int64_t ldy);

/// The same without that instruction. For tests and the micro-benchmark.
void add_bf16_pairs_apart(std::int64_t group, std::int64_t pairs, const std::uint16_t* w, std::int64_t ldw,
                          const std::uint16_t* rows, std::int64_t distance, std::int64_t n, float* y,
                          std::int64_t ldy);

/// Does this processor have it?
bool multiplies_bf16_pairs();

}  // namespace eaglet
