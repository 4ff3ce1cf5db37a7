#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "formats/json.h"

namespace eaglet {

/// How a transformers folder's matrices are quantised, from config.json's `quantization_config`. Which of
/// them are follows from the tensors that are there, not from the lists of names beside it.
struct WeightQuantisation {
  enum class Kind { kNone, kFp8, kPackedInt };
  Kind kind = Kind::kNone;
  std::int64_t block_rows = 0, block_columns = 0;  // kFp8: what one scale is for; 0 = a row, or all of it
  std::int64_t bits = 0;                           // kPackedInt: 1 to 8
  std::int64_t group = 0;                          // kPackedInt: columns of one scale; 0 = the whole row
};

/// Reads the object; nullptr is kNone. Known: quant_method fp8 (DeepSeek-V3, Kimi-K2, Qwen3-FP8: e4m3 with a
/// scale a block), compressed-tensors of the formats float-quantized (e4m3) and pack-quantized (whole numbers
/// of 1 to 8 bits). Everything else is kConfig, named with what is known. Rounding of activations, which such
/// models do when served, is not imitated.
Result<WeightQuantisation> weight_quantisation_from_json(const Json* json);

/// w [rows, columns] (e4m3) with scales of shape `scale_shape`: one, one a row, or one a block. kConfig when
/// they do not fit.
Result<std::vector<float>> dequantise_fp8(const WeightQuantisation& quantisation, std::int64_t rows,
                                          std::int64_t columns, const std::uint8_t* w,
                                          const std::vector<std::int64_t>& scale_shape,
                                          const std::vector<float>& scales);

/// Packed whole numbers: a row's numbers end to end, lowest bits first, each 2^(bits-1) above its value; in
/// little-endian 32-bit words, `words_per_row` of them.
struct PackedRows {
  const std::uint32_t* words = nullptr;
  std::int64_t words_per_row = 0;
};
std::int64_t packed_words(std::int64_t numbers, std::int64_t bits);
/// w [rows, columns] = (number - zero point) x scale, scales [rows, groups]. Zero points (nullptr: all 0) are
/// packed along the rows: those of group g are the words g, g + groups, g + 2 groups ...
std::vector<float> dequantise_packed(const WeightQuantisation& quantisation, std::int64_t rows,
                                     std::int64_t columns, const PackedRows& packed,
                                     const std::vector<float>& scales, const std::uint32_t* zero_points);

}  // namespace eaglet
