#include "target/target_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "target/expert_layer.h"

namespace eaglet {
namespace {

using testing::HasSubstr;

Json llama() {
  return Json::parse(
      R"({"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 3, "vocab_size": 96, "intermediate_size": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0})");
}

TEST(TargetConfig, WhatChangesTheArithmeticIsRefusedByName) {
  ASSERT_TRUE(target_config_from_json(llama()).ok());
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, Json>>{{"model_type", "gpt2"},
                                                 {"hidden_act", "gelu"},
                                                 {"partial_rotary_factor", 0.5},
                                                 {"final_logit_softcapping", 30.0},
                                                 {"quantization_config", {{"quant_method", "gptq"}}},
                                                 {"hidden_size", "32"},
                                                 {"rope_scaling", {{"rope_type", "dynamic"}}}}) {
    Json changed = llama();
    changed[name] = value;
    const auto config = target_config_from_json(changed);
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.status().code(), StatusCode::kConfig) << name;
    EXPECT_FALSE(config.status().what().empty());
  }
}

TEST(TargetConfig, SizesThatCannotBeAreRefused) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::int64_t>>{{"hidden_size", 0},
                                                         {"num_hidden_layers", -1},
                                                         {"num_hidden_layers", 1 << 30},
                                                         {"num_key_value_heads", 3},
                                                         {"head_dim", 7},
                                                         {"vocab_size", 0}}) {
    Json changed = llama();
    changed[name] = value;
    EXPECT_EQ(target_config_from_json(changed).status().code(), StatusCode::kConfig) << name << " " << value;
  }
}

TEST(TargetConfig, WindowsByLayer) {
  Json json = llama();
  json["sliding_window"] = 6;
  json["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(target_config_from_json(json)->window, (std::vector<std::int64_t>{0, 6, 0}));
  json["layer_types"] = {"full_attention", "linear_attention", "full_attention"};
  EXPECT_THAT(target_config_from_json(json).status().what(), HasSubstr("linear_attention"));
  json.erase("layer_types");
  json["model_type"] = "mistral";
  EXPECT_EQ(target_config_from_json(json)->window, (std::vector<std::int64_t>{6, 6, 6}));
  json["model_type"] = "qwen2";
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 2;
  EXPECT_EQ(target_config_from_json(json)->window, (std::vector<std::int64_t>{0, 0, 6}));
}

TEST(TargetConfig, TheTextPartOfAModelForPictures) {
  const Json json = {{"model_type", "kimi_k25"}, {"text_config", llama()}};
  ASSERT_TRUE(target_config_from_json(json).ok());
  EXPECT_EQ(target_config_from_json(json)->model_type, "llama");
}

// Two groups of two; the second holds the two best together, though the best of all is in the first.
TEST(Experts, GroupsCorrectionAndWeights) {
  ExpertConfig e;
  e.count = 4, e.per_token = 2, e.groups = 2, e.groups_kept = 1, e.sigmoid = true, e.normalised = true,
  e.scale = 2;
  const std::vector<float> logits = {3, -9, 2, 2.5};
  const Routing plain = route(e, 1, logits.data(), {0, 0, 0, 0});
  EXPECT_EQ(plain.expert, (std::vector<std::int32_t>{3, 2}));
  EXPECT_NEAR(plain.weight[0] + plain.weight[1], 2, 1e-6);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_NEAR(plain.weight[0], 2 * sigmoid(2.5) / (sigmoid(2.5) + sigmoid(2)), 1e-6);
  // The correction chooses the first group; the weights are still those of the scores.
  const Routing corrected = route(e, 1, logits.data(), {0, 1, 0, 0});
  EXPECT_EQ(corrected.expert, (std::vector<std::int32_t>{1, 0}));
  EXPECT_NEAR(corrected.weight[1], 2 * sigmoid(3) / (sigmoid(3) + sigmoid(-9)), 1e-6);
}

TEST(Experts, SoftmaxAndEqualScores) {
  ExpertConfig e;
  e.count = 3, e.per_token = 2;
  const std::vector<float> logits = {1, 1, 1};
  const Routing routing = route(e, 1, logits.data(), {});
  EXPECT_EQ(routing.expert, (std::vector<std::int32_t>{0, 1}));
  EXPECT_NEAR(routing.weight[0], 1.0 / 3, 1e-6);
}

}  // namespace
}  // namespace eaglet
