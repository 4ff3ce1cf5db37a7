#include "target/weight_quantisation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "formats/safetensors.h"
#include "target/target_forward.h"
#include "tensor/float8.h"

namespace eaglet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Json packed(const Json& changes) {
  Json weights = {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}};
  weights.update(changes);
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"weights", weights}}}}}};
}

TEST(WeightQuantisation, WhatIsKnown) {
  EXPECT_EQ(weight_quantisation_from_json(nullptr)->kind, WeightQuantisation::Kind::kNone);
  const Json fp8 = {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 64}}};
  const auto blocks = weight_quantisation_from_json(&fp8);
  EXPECT_EQ(blocks->kind, WeightQuantisation::Kind::kFp8);
  EXPECT_EQ(blocks->block_rows, 128);
  EXPECT_EQ(blocks->block_columns, 64);
  const Json kimi = packed({{"actorder", nullptr}});
  EXPECT_EQ(weight_quantisation_from_json(&kimi)->group, 32);
  EXPECT_EQ(weight_quantisation_from_json(&kimi)->bits, 4);
}

TEST(WeightQuantisation, WhatIsNotKnownIsNamed) {
  for (const auto& [json, said] : std::vector<std::pair<Json, std::string>>{
           {{{"quant_method", "awq"}}, "awq"},
           {{{"quant_method", "fp8"}, {"fmt", "e5m2"}}, "e5m2"},
           {{{"quant_method", "fp8"}, {"weight_block_size", {0, 128}}}, "weight_block_size"},
           {{{"quant_method", "fp8"}, {"weight_block_size", "128"}}, "weight_block_size"},
           {{{"quant_method", "compressed-tensors"},
             {"format", "nvfp4-pack-quantized"},
             {"config_groups", {{"g", {{"weights", Json::object()}}}}}},
            "nvfp4"},
           {{{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}}, "config_groups"},
           {packed({{"num_bits", 9}}), "9 bits"},
           {packed({{"type", "float"}}), "float"},
           {packed({{"group_size", 0}}), "groups of 0"},
           {packed({{"strategy", "tensor_group"}}), "tensor_group"},
           {packed({{"actorder", "group"}}), "actorder"}}) {
    const auto q = weight_quantisation_from_json(&json);
    ASSERT_FALSE(q.ok()) << said;
    EXPECT_EQ(q.status().code(), StatusCode::kConfig);
    EXPECT_THAT(q.status().what(), HasSubstr(said));
  }
}

// Numbers of three bits lie across words: number 10 of a row has bits 30, 31 and 32.
TEST(DequantisePacked, EveryWidthOfBits) {
  for (std::int64_t bits = 1; bits <= 8; ++bits) {
    SCOPED_TRACE(bits);
    const std::int64_t rows = 3, columns = 37, words = packed_words(columns, bits);
    std::vector<std::uint32_t> packed(static_cast<std::size_t>(rows * words));
    std::vector<float> wanted;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::int64_t number = (row * 91 + i * 7) % (std::int64_t{1} << bits);
        for (std::int64_t bit = 0; bit < bits; ++bit)
          packed[static_cast<std::size_t>(row * words + (i * bits + bit) / 32)] |=
              static_cast<std::uint32_t>(number >> bit & 1) << (i * bits + bit) % 32;
        wanted.push_back(0.5f * static_cast<float>(number - (std::int64_t{1} << (bits - 1))));
      }
    WeightQuantisation q{WeightQuantisation::Kind::kPackedInt, 0, 0, bits, 0};
    EXPECT_EQ(dequantise_packed(q, rows, columns, {packed.data(), words}, {0.5f, 0.5f, 0.5f}, nullptr),
              wanted);
  }
}

TEST(DequantiseFp8, OneScaleRowsAndBlocks) {
  const std::vector<std::uint8_t> ones(12, f32_to_f8e4m3(1));  // [3, 4]
  WeightQuantisation q{WeightQuantisation::Kind::kFp8, 0, 0, 0, 0};
  EXPECT_EQ(*dequantise_fp8(q, 3, 4, ones.data(), {}, {2}), std::vector<float>(12, 2));
  EXPECT_EQ(*dequantise_fp8(q, 3, 4, ones.data(), {3, 1}, {1, 2, 3}),
            (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}));
  q.block_rows = 2, q.block_columns = 3;
  EXPECT_EQ(*dequantise_fp8(q, 3, 4, ones.data(), {2, 2}, {1, 2, 3, 4}),
            (std::vector<float>{1, 1, 1, 2, 1, 1, 1, 2, 3, 3, 3, 4}));
  EXPECT_EQ(dequantise_fp8(q, 3, 4, ones.data(), {4, 1}, {1, 2, 3, 4}).status().code(), StatusCode::kConfig);
  EXPECT_EQ(dequantise_fp8(q, 3, 4, ones.data(), {3, 1}, {1, 2, 3}).status().code(), StatusCode::kConfig);
}

// A folder whose tensors or config.json were changed: named, never read as something else.
class BrokenFolder : public testing::Test {
 protected:
  Status run_without(const std::string& fixture, const std::string& dropped, const Json& config_change) {
    const fs::path folder = fs::path(testing::TempDir()) / "broken_target";
    fs::remove_all(folder);
    fs::create_directories(folder);
    const fs::path from = fs::path(EAGLET_TESTDATA) / "quantised_targets" / fixture;
    Json config = *read_json_file((from / "config.json").string());
    config.merge_patch(config_change);
    std::ofstream(folder / "config.json") << config;
    const auto file = SafetensorsFile::open((from / "model.safetensors").string());
    std::vector<TensorView> tensors;
    for (const SafetensorsEntry& e : file->entries())
      if (e.name != dropped) tensors.push_back({e.name, e.dtype, e.shape, file->data(e)});
    EXPECT_EQ(tensors.size() + (dropped.empty() ? 0 : 1), file->entries().size());
    EXPECT_TRUE(write_safetensors((folder / "model.safetensors").string(), tensors).ok());
    auto forward = TargetForward::open(folder.string());
    if (!forward.ok()) return forward.status();
    const std::vector<std::int32_t> ids = {1, 2, 3};
    return (*forward)->run({&ids}, (*forward)->config().num_layers,
                           [](std::int64_t, const float*) { return Status(); });
  }
};

TEST_F(BrokenFolder, IsNamed) {
  EXPECT_TRUE(run_without("qwen3_fp8_rows", "", Json::object()).ok());
  const std::string scale = "model.layers.1.self_attn.q_proj.weight_scale";
  EXPECT_THAT(run_without("qwen3_fp8_rows", scale, Json::object()).what(), HasSubstr(scale));
  EXPECT_THAT(run_without("qwen3_fp8_rows", "", {{"quantization_config", nullptr}}).what(), HasSubstr("fp8"));
  const std::string shape = "model.layers.0.mlp.up_proj.weight_shape";
  EXPECT_THAT(run_without("llama_int4_zero_points", shape, Json::object()).what(), HasSubstr(shape));
  EXPECT_THAT(run_without("llama_int4_zero_points", "", {{"quantization_config", nullptr}}).what(),
              HasSubstr("_packed"));
  const Json groups = {
      {"quantization_config", {{"config_groups", {{"group_0", {{"weights", {{"group_size", 8}}}}}}}}}};
  EXPECT_THAT(run_without("llama_int4_zero_points", "", groups).what(), HasSubstr("weight_scale"));
}

}  // namespace
}  // namespace eaglet
