#include "target/weight_quantisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "formats/config_fields.h"
#include "formats/json_field.h"
#include "tensor/float8.h"

namespace eaglet {
namespace {

Status unknown_quantisation(const std::string& what) {
  return Status(
      StatusCode::kConfig, what + " (quantization_config)", {},
      "the native engine reads fp32, bf16 and fp16 weights, fp8 (e4m3) with scales by block, row or "
      "tensor, and compressed-tensors' packed whole numbers of 1 to 8 bits; take such a model, or a "
      "GGUF file");
}

Status read_block(const Json& json, const char* name, WeightQuantisation* q) {
  const Json* block = json_field(json, name);
  if (block == nullptr) return {};
  const bool fits = block->is_array() && block->size() == 2 && (*block)[0].is_number_integer() &&
                    (*block)[1].is_number_integer();
  if (!fits) return unknown_quantisation(fmt::format("\"{}\" that is no pair of numbers", name));
  q->block_rows = (*block)[0].get<std::int64_t>();
  q->block_columns = (*block)[1].get<std::int64_t>();
  if (q->block_rows > 0 && q->block_columns > 0) return {};
  return unknown_quantisation(fmt::format("\"{}\" of {}", name, json_shown(*block)));
}

// The one group of modules that compressed-tensors describes.
Result<const Json*> only_weights(const Json& json) {
  const Json* groups = json_field(json, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1)
    return unknown_quantisation("\"config_groups\" that is not one group");
  const Json* weights = json_field(*groups->begin(), "weights");
  if (weights == nullptr) return unknown_quantisation("a group without \"weights\"");
  return weights;
}

Result<WeightQuantisation> read_compressed(const Json& json) {
  WeightQuantisation q;
  ConfigFields fields(json);
  std::string format;
  fields.read("format", &format);
  EAGLET_ASSIGN_OR_RETURN(const Json* weights, only_weights(json));
  ConfigFields of_weights(*weights);
  std::string type, strategy;
  std::int64_t group = -1;
  of_weights.read("type", &type);
  of_weights.read("strategy", &strategy);
  of_weights.read("num_bits", &q.bits);
  of_weights.read("group_size", &group);
  EAGLET_RETURN_IF_ERROR(fields.status());
  EAGLET_RETURN_IF_ERROR(of_weights.status());
  if (format == "float-quantized" || format == "naive-quantized") {
    if (type != "float" || q.bits != 8)
      return unknown_quantisation(fmt::format("{} of {} bits", type, q.bits));
    q.kind = WeightQuantisation::Kind::kFp8;
    EAGLET_RETURN_IF_ERROR(read_block(*weights, "block_structure", &q));
    return q;
  }
  if (format != "pack-quantized") return unknown_quantisation("the format \"" + format + "\"");
  if (type != "int" || q.bits < 1 || q.bits > 8)
    return unknown_quantisation(fmt::format("{} of {} bits", type, q.bits));
  if (strategy != "group" && strategy != "channel")
    return unknown_quantisation("the strategy \"" + strategy + "\"");
  const Json* order = json_field(*weights, "actorder");
  if (order != nullptr && *order != "static" && *order != "weight" && *order != false)
    return unknown_quantisation("\"actorder\": " + json_shown(*order));
  q.kind = WeightQuantisation::Kind::kPackedInt;
  q.group = strategy == "group" ? group : 0;
  if (strategy == "group" && group < 1) return unknown_quantisation(fmt::format("groups of {}", group));
  return q;
}

}  // namespace

Result<WeightQuantisation> weight_quantisation_from_json(const Json* json) {
  WeightQuantisation q;
  if (json == nullptr) return q;
  ConfigFields fields(*json);
  std::string method, fmt_name = "e4m3";
  fields.read("quant_method", &method);
  if (method == "compressed-tensors") return read_compressed(*json);
  fields.read("fmt", &fmt_name);
  EAGLET_RETURN_IF_ERROR(fields.status());
  if (method != "fp8") return unknown_quantisation("the method \"" + method + "\"");
  if (fmt_name != "e4m3" && fmt_name != "float8_e4m3fn")
    return unknown_quantisation("fp8 of the form " + fmt_name);
  q.kind = WeightQuantisation::Kind::kFp8;
  EAGLET_RETURN_IF_ERROR(read_block(*json, "weight_block_size", &q));
  return q;
}

Result<std::vector<float>> dequantise_fp8(const WeightQuantisation& q, std::int64_t rows,
                                          std::int64_t columns, const std::uint8_t* w,
                                          const std::vector<std::int64_t>& scale_shape,
                                          const std::vector<float>& scales) {
  std::int64_t across = 1, block_rows = rows, block_columns = columns;  // one scale for all
  if (scales.size() != 1) {
    block_rows = q.block_rows > 0 ? q.block_rows : 1;
    if (q.block_columns > 0) block_columns = q.block_columns;
    across = (columns + block_columns - 1) / block_columns;
    const std::int64_t down = (rows + block_rows - 1) / block_rows;
    if (static_cast<std::int64_t>(scales.size()) != down * across || scale_shape.empty() ||
        scale_shape[0] != down)
      return Status(StatusCode::kConfig,
                    fmt::format("scales [{}] do not fit a matrix [{}, {}] in blocks of {} x {}",
                                fmt::join(scale_shape, ", "), rows, columns, block_rows, block_columns));
  }
  const float* table = f8e4m3_table();
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* scale = scales.data() + row / block_rows * across;
    for (std::int64_t begin = 0; begin < columns; begin += block_columns, ++scale) {
      const std::int64_t end = std::min(columns, begin + block_columns);
      for (std::int64_t i = row * columns + begin; i < row * columns + end; ++i)
        values[static_cast<std::size_t>(i)] = table[w[i]] * *scale;
    }
  }
  return values;
}

std::int64_t packed_words(std::int64_t numbers, std::int64_t bits) {
  return (numbers * bits + 31) / 32;
}

namespace {

// Number i of a row of packed ones. `stride` is from one word of the row to the next.
std::int32_t packed_number(const std::uint32_t* row, std::int64_t stride, std::int64_t i, std::int64_t bits) {
  const std::int64_t bit = i * bits, word = bit / 32, offset = bit % 32;
  std::uint64_t wide = row[word * stride];
  if (offset + bits > 32) wide |= static_cast<std::uint64_t>(row[(word + 1) * stride]) << 32;
  return static_cast<std::int32_t>(wide >> offset & ((1u << bits) - 1)) - (1 << (bits - 1));
}

// What the two numbers of a byte of 4-bit ones stand for.
struct Pair {
  float low, high;
};
const Pair* four_bit_pairs() {
  static const std::array<Pair, 256> pairs = [] {
    std::array<Pair, 256> all;
    for (int byte = 0; byte < 256; ++byte)
      all[static_cast<std::size_t>(byte)] = {static_cast<float>((byte & 15) - 8),
                                             static_cast<float>((byte >> 4) - 8)};
    return all;
  }();
  return pairs.data();
}

// Columns [begin, end) of a row, begin even. Nearly all packed models have 4 bits: a byte at a time.
void take_back_four_bits(const std::uint32_t* words, std::int64_t begin, std::int64_t end, std::int32_t zero,
                         float scale, float* row) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(words);  // little-endian, as the file
  const Pair* pairs = four_bit_pairs();
  const auto shift = static_cast<float>(zero);
  std::int64_t i = begin;
  for (; i + 2 <= end; i += 2) {
    const Pair pair = pairs[bytes[i / 2]];
    row[i] = (pair.low - shift) * scale;
    row[i + 1] = (pair.high - shift) * scale;
  }
  if (i < end) row[i] = (pairs[bytes[i / 2]].low - shift) * scale;
}

}  // namespace

std::vector<float> dequantise_packed(const WeightQuantisation& q, std::int64_t rows, std::int64_t columns,
                                     const PackedRows& packed, const std::vector<float>& scales,
                                     const std::uint32_t* zero_points) {
  const std::int64_t group = q.group > 0 ? q.group : columns, groups = (columns + group - 1) / group;
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint32_t* words = packed.words + row * packed.words_per_row;
    for (std::int64_t g = 0; g < groups; ++g) {
      const float scale = scales[static_cast<std::size_t>(row * groups + g)];
      const std::int32_t zero =
          zero_points == nullptr ? 0 : packed_number(zero_points + g, groups, row, q.bits);
      const std::int64_t begin = g * group, end = std::min(columns, begin + group);
      if (q.bits == 4 && begin % 2 == 0) {
        take_back_four_bits(words, begin, end, zero, scale, values.data() + row * columns);
        continue;
      }
      for (std::int64_t i = begin; i < end; ++i)
        values[static_cast<std::size_t>(row * columns + i)] =
            static_cast<float>(packed_number(words, 1, i, q.bits) - zero) * scale;
    }
  }
  return values;
}

}  // namespace eaglet
