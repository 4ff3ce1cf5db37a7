#include "draft/draft_weights.h"

#include <gtest/gtest.h>

#include <cmath>

namespace eaglet {
namespace {

DraftConfig tiny() {
  DraftConfig c;
  c.hidden = c.target_hidden = 8;
  c.num_heads = 2, c.num_kv_heads = 1, c.head_dim = 4, c.intermediate = 16;
  c.vocab = 64, c.draft_vocab = 3;
  c.aux_layers = {2, 4, 6};
  return c;
}

std::vector<std::string> names(const std::vector<ParameterInfo>& table) {
  std::vector<std::string> result;
  for (const ParameterInfo& info : table) result.push_back(info.name);
  return result;
}

TEST(ParameterTable, IsSpeculatorsListInOneContiguousBlock) {
  const auto table = parameter_table(tiny(), false);
  EXPECT_EQ(names(table), (std::vector<std::string>{
                              "fc.weight", "layers.0.input_layernorm.weight", "layers.0.hidden_norm.weight",
                              "layers.0.post_attention_layernorm.weight", "layers.0.self_attn.q_proj.weight",
                              "layers.0.self_attn.k_proj.weight", "layers.0.self_attn.v_proj.weight",
                              "layers.0.self_attn.o_proj.weight", "layers.0.mlp.gate_proj.weight",
                              "layers.0.mlp.up_proj.weight", "layers.0.mlp.down_proj.weight", "norm.weight",
                              "lm_head.weight"}));
  std::int64_t next = 0;
  for (const ParameterInfo& info : table) {
    EXPECT_EQ(info.offset, next) << info.name;
    EXPECT_EQ(info.trainable, info.name != "lm_head.weight") << info.name;
    next += info.elements;
  }
  EXPECT_TRUE(parameter_table(tiny(), true).back().trainable);
}

TEST(ParameterTable, FollowsTheFlags) {
  DraftConfig c = tiny();
  c.num_layers = 2, c.qk_norm = true, c.fc_norm = true, c.target_hidden = 10;
  DraftWeights draft{c, {}, parameter_table(c, false), {}, {}};
  EXPECT_EQ(draft.find("fc.weight")->shape, (std::vector<std::int64_t>{8, 30}));
  EXPECT_EQ(draft.find("fc_norm.2.weight")->shape, (std::vector<std::int64_t>{10}));
  EXPECT_EQ(draft.find("layers.0.self_attn.q_proj.weight")->shape, (std::vector<std::int64_t>{8, 16}));
  EXPECT_EQ(draft.find("layers.1.self_attn.q_proj.weight")->shape, (std::vector<std::int64_t>{8, 8}));
  EXPECT_EQ(draft.find("layers.1.self_attn.k_norm.weight")->shape, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(draft.find("layers.1.hidden_norm.weight"), nullptr);
  EXPECT_EQ(draft.find("input_norm.weight"), nullptr);
  c.fc_norm = false, c.norm_before_fc = true;
  draft.table = parameter_table(c, false);
  EXPECT_EQ(draft.find("input_norm.weight")->shape, (std::vector<std::int64_t>{30}));
}

TEST(NewDraft, TakesHeadRowsAndNormFromTheTarget) {
  const DraftConfig c = tiny();
  DraftVocab vocab;
  vocab.target_vocab = 64, vocab.target_ids = {1, 7, 63};
  std::vector<float> head(64 * 8), norm(8);
  for (std::size_t i = 0; i < head.size(); ++i) head[i] = static_cast<float>(i);
  for (std::size_t i = 0; i < norm.size(); ++i) norm[i] = 2.0f + static_cast<float>(i);
  const DraftWeights draft = new_draft(c, vocab, true, head, norm, 5);
  EXPECT_EQ(draft.data("lm_head.weight")[0], 8.0f);
  EXPECT_EQ(draft.data("lm_head.weight")[2 * 8 + 7], 63.0f * 8 + 7);
  EXPECT_EQ(draft.data("norm.weight")[3], 5.0f);
  EXPECT_EQ(draft.data("layers.0.hidden_norm.weight")[0], 1.0f);
  EXPECT_EQ(draft.data("no such tensor"), nullptr);

  const ParameterInfo& fc = *draft.find("fc.weight");
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < fc.elements; ++i) {
    sum += draft.data("fc.weight")[i];
    squares += std::pow(draft.data("fc.weight")[i], 2);
  }
  EXPECT_NEAR(sum / static_cast<double>(fc.elements), 0, 0.005);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(fc.elements)), 0.02, 0.004);

  EXPECT_EQ(new_draft(c, vocab, true, head, norm, 5).values, draft.values);
  EXPECT_NE(new_draft(c, vocab, true, head, norm, 6).values, draft.values);
}

TEST(NewDraft, CannotCopyFromAWiderTarget) {
  DraftConfig c = tiny();
  c.target_hidden = 10;
  DraftVocab vocab;
  vocab.target_vocab = 64, vocab.target_ids = {1, 7, 63};
  const DraftWeights draft =
      new_draft(c, vocab, true, std::vector<float>(640, 3.0f), std::vector<float>(10, 3.0f), 5);
  EXPECT_EQ(draft.data("norm.weight")[0], 1.0f);
  EXPECT_LT(std::abs(draft.data("lm_head.weight")[0]), 0.2f);
}

TEST(CheckDraftConfig, NamesTheFirstImpossibleThing) {
  EXPECT_TRUE(check_draft_config(tiny()).ok());
  const auto message = [](auto change) {
    DraftConfig c = tiny();
    change(c);
    return check_draft_config(c).message();
  };
  EXPECT_NE(message([](DraftConfig& c) { c.head_dim = 3; }).find("odd"), std::string::npos);
  EXPECT_NE(message([](DraftConfig& c) { c.num_kv_heads = 3; }).find("evenly"), std::string::npos);
  EXPECT_NE(message([](DraftConfig& c) { c.draft_vocab = 65; }).find("larger than"), std::string::npos);
  EXPECT_NE(message([](DraftConfig& c) { c.aux_layers = {2, 2}; }).find("must rise"), std::string::npos);
  EXPECT_NE(message([](DraftConfig& c) { c.aux_layers = {}; }).find("no captured"), std::string::npos);
  EXPECT_NE(message([](DraftConfig& c) { c.hidden = std::int64_t{1} << 40; }).find("hidden_size"),
            std::string::npos);
  EXPECT_NE(message([](DraftConfig& c) { c.hidden_act = "gelu"; }).find("gelu"), std::string::npos);
  EXPECT_NE(message([](DraftConfig& c) { c.fc_norm = c.norm_before_fc = true; }).find("exclude"),
            std::string::npos);
  EXPECT_NE(message([](DraftConfig& c) { c.sliding_window = {4, 4}; }).find("window"), std::string::npos);
}

}  // namespace
}  // namespace eaglet
