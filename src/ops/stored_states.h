#pragma once

#include <cstdint>

namespace eaglet {

// Numbers of hidden states as a store keeps them (docs/formats/store.md) become fp32 where they are wanted:
// what goes over the bus to a device is then as small as what was read. Rows of `width` numbers, `ld` apart;
// all arrays lie where `to` lies. Exact: the same bits as the store's own reader gives.

/// to = from, bf16.
void widen_bf16(std::int64_t rows, std::int64_t width, const std::uint16_t* from, std::int64_t ld, float* to,
                std::int64_t to_ld);

/// to = scale of the row [rows] times its e4m3 numbers, rounded to bf16 as all states are.
void widen_fp8(std::int64_t rows, std::int64_t width, const float* scales, const std::uint8_t* from,
               std::int64_t ld, float* to, std::int64_t to_ld);

/// The lossless form after zstd: bf16 from a plane of high and one of low bytes, [rows, width] each. With
/// `base` [rows, width, base_ld apart] they are zigzag differences of bits to it. `bits` (may be nullptr)
/// keeps the bf16 numbers, for documents that have these as their base.
void join_planes(std::int64_t rows, std::int64_t width, const std::uint8_t* high, const std::uint8_t* low,
                 const std::uint16_t* base, std::int64_t base_ld, float* to, std::int64_t to_ld,
                 std::uint16_t* bits, std::int64_t bits_ld);

}  // namespace eaglet
