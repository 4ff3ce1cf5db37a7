#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/files.h"
#include "draft/draft_weights.h"
#include "formats/safetensors.h"

namespace eaglet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kData = std::string(EAGLET_TESTDATA) + "/draft/";
const std::vector<std::int32_t> kMap = {0,  1,  2,  3,  5,  6,  8,  9,  11, 13, 16, 19,
                                        20, 22, 26, 29, 31, 33, 37, 40, 44, 52, 60, 63};

class DraftFiles : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("eaglet_draft_test_" + std::to_string(getpid()));
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  using Tensors = std::vector<TensorView>;
  /// A copy of a test folder whose tensors `change` may rename, drop or replace.
  std::string changed(const std::string& from, const std::function<void(Tensors&)>& change) {
    const auto file = SafetensorsFile::open(kData + from + "/model.safetensors");
    Tensors tensors;
    for (const auto& e : file->entries()) tensors.push_back({e.name, e.dtype, e.shape, file->data(e)});
    change(tensors);
    EXPECT_TRUE(write_safetensors(directory_ / "model.safetensors", tensors).ok());
    fs::copy_file(kData + from + "/config.json", directory_ / "config.json",
                  fs::copy_options::overwrite_existing);
    return directory_;
  }
  /// a_offset with the two map tensors of another file.
  std::string with_map(const std::string& map) {
    const auto file = SafetensorsFile::open(kData + "maps/" + map);
    return changed("maps/a_offset", [&](Tensors& tensors) {
      for (TensorView& t : tensors) {
        if (const auto* entry = file->find(t.name)) t.data = file->data(*entry);
      }
    });
  }

  fs::path directory_;
};

std::string failure(const std::string& directory) {
  const auto draft = read_draft(directory, false, nullptr);
  EXPECT_FALSE(draft.ok()) << directory;
  return draft.status().message();
}

TEST_F(DraftFiles, OneDraftUnderThreeNamings) {
  LoadReport report;
  const auto midlayer = read_draft(kData + "names/a_midlayer", false, &report);
  ASSERT_TRUE(midlayer.ok()) << midlayer.status().message();
  EXPECT_EQ(report.loaded.size(), 13u);
  EXPECT_EQ(report.skipped.size(), 2u);  // the maps, read as such
  EXPECT_TRUE(report.missing.empty());
  EXPECT_EQ(midlayer->vocab.target_ids, kMap);
  EXPECT_THAT(midlayer->config.aux_layers, ElementsAre(2, 4, 6));

  const auto layers0 = read_draft(kData + "names/b_layers0", false, nullptr);
  ASSERT_TRUE(layers0.ok()) << layers0.status().message();
  EXPECT_EQ(layers0->values, midlayer->values);

  const auto prefixed =
      read_draft(changed("names/b_layers0",
                         [](Tensors& tensors) {
                           for (TensorView& t : tensors) {
                             if (t.name != "d2t" && t.name != "t2d" && t.name != "lm_head.weight") {
                               t.name = "model." + t.name;
                             }
                           }
                         }),
                 false, nullptr);
  ASSERT_TRUE(prefixed.ok()) << prefixed.status().message();
  EXPECT_EQ(prefixed->values, midlayer->values);
}

TEST_F(DraftFiles, OneTensorUnderTwoNamesIsRefused) {
  const std::string path = changed("names/b_layers0", [](Tensors& tensors) {
    TensorView twice = tensors.back();
    for (const TensorView& t : tensors) {
      if (t.name == "norm.weight") twice = t;
    }
    twice.name = "model.norm.weight";
    tensors.push_back(twice);
  });
  EXPECT_THAT(failure(path), HasSubstr("one and the same tensor"));
}

TEST_F(DraftFiles, MissingPartsAreNamedNeverGuessed) {
  EXPECT_THAT(failure(kData + "names/e_no_head_reduced"), HasSubstr("lm_head.weight is missing"));
  EXPECT_THAT(failure(kData + "names/f_one_missing"), HasSubstr("layers.0.self_attn.v_proj.weight"));
  EXPECT_THAT(failure(kData + "names/g_head_shape"),
              testing::AllOf(HasSubstr("[40, 8]"), HasSubstr("[24, 8]")));
  EXPECT_THAT(failure(kData + "names/d_no_head_full"), HasSubstr("--model"));
}

TEST_F(DraftFiles, FullVocabularyTakesTheTargetsHead) {
  const std::vector<float> head(64 * 8, 0.5f);
  ReadDraftOptions options;
  options.target_head = &head;
  LoadReport report;
  const auto draft = read_draft(kData + "names/d_no_head_full", options, &report);
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  ASSERT_EQ(report.missing.size(), 1u);
  EXPECT_EQ(report.missing[0].name, "lm_head.weight");
  EXPECT_EQ(draft->data("lm_head.weight")[64 * 8 - 1], 0.5f);
  EXPECT_TRUE(draft->vocab.is_full());
}

TEST_F(DraftFiles, MapsThatAreNotOffsetsAreRefused) {
  const auto offset = read_draft(kData + "maps/a_offset", false, nullptr);
  ASSERT_TRUE(offset.ok()) << offset.status().message();
  EXPECT_EQ(offset->vocab.target_ids, kMap);
  EXPECT_THAT(failure(with_map("map_b_absolute.safetensors")), HasSubstr("absolute"));
  EXPECT_THAT(failure(with_map("map_c_absolute_in_range.safetensors")), HasSubstr("absolute"));
  EXPECT_THAT(failure(with_map("map_d_zero.safetensors")), HasSubstr("all zeros"));
  const auto drop = [](const char* first, const char* second) {
    return [=](Tensors& tensors) {
      std::erase_if(tensors, [&](const TensorView& t) { return t.name == first || t.name == second; });
    };
  };
  EXPECT_THAT(failure(changed("maps/a_offset", drop("d2t", "t2d"))), HasSubstr("no map"));
  EXPECT_THAT(failure(changed("maps/a_offset", drop("d2t", "d2t"))), HasSubstr("no map"));
  EXPECT_THAT(failure(changed("maps/a_offset",
                              [](Tensors& tensors) {
                                for (TensorView& t : tensors) {
                                  if (t.name == "d2t") t.shape = {20};
                                }
                              })),
              testing::AllOf(HasSubstr("20"), HasSubstr("24")));
}

TEST_F(DraftFiles, UnsortedMapIsSortedTogetherWithTheHead) {
  const std::vector<std::int64_t> reversed = [] {
    std::vector<std::int64_t> d2t(24);
    for (std::size_t i = 0; i < 24; ++i) d2t[i] = kMap[23 - i] - static_cast<std::int64_t>(i);
    return d2t;
  }();
  std::vector<std::uint16_t> head;
  const std::string path = changed("maps/a_offset", [&](Tensors& tensors) {
    for (TensorView& t : tensors) {
      if (t.name == "d2t") t.data = reversed.data();
      if (t.name != "lm_head.weight") continue;
      const auto* rows = static_cast<const std::uint16_t*>(t.data);
      for (int row = 23; row >= 0; --row) head.insert(head.end(), rows + row * 8, rows + row * 8 + 8);
      t.data = head.data();
    }
  });
  LoadReport report;
  const auto sorted = read_draft(path, false, &report);
  ASSERT_TRUE(sorted.ok()) << sorted.status().message();
  EXPECT_EQ(report.notes.size(), 1u);
  EXPECT_EQ(sorted->vocab.target_ids, kMap);
  EXPECT_EQ(sorted->values, read_draft(kData + "maps/a_offset", false, nullptr)->values);
}

TEST_F(DraftFiles, LeftoversAreListedAndBiasesRefused) {
  const std::vector<float> numbers(8, 1.0f);
  LoadReport report;
  const auto draft =
      read_draft(changed("names/a_midlayer",
                         [&](Tensors& tensors) {
                           tensors.push_back({"verifier_norm.weight", Dtype::kF32, {8}, numbers.data()});
                         }),
                 false, &report);
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  EXPECT_EQ(report.skipped.back().name, "verifier_norm.weight");
  EXPECT_THAT(failure(changed(
                  "names/a_midlayer",
                  [&](Tensors& tensors) {
                    tensors.push_back({"midlayer.self_attn.q_proj.bias", Dtype::kF32, {8}, numbers.data()});
                  })),
              HasSubstr("q_proj.bias"));
}

TEST_F(DraftFiles, NotFiniteIsNamed) {
  std::vector<float> numbers(8, 1.0f);
  numbers[3] = NAN;
  EXPECT_THAT(failure(changed("names/a_midlayer",
                              [&](Tensors& tensors) {
                                for (TensorView& t : tensors) {
                                  if (t.name == "norm.weight") t.dtype = Dtype::kF32, t.data = numbers.data();
                                }
                              })),
              HasSubstr("norm.weight holds a value that is not finite (element 3)"));
}

TEST_F(DraftFiles, WrittenAndReadAgain) {
  auto draft = read_draft(kData + "maps/a_offset", true, nullptr);
  ASSERT_TRUE(draft.ok());
  draft->embed_tokens.assign(64 * 8, 0.25f);
  draft->config.target_identity = "0123456789abcdef";
  draft->config.sliding_window = {16};
  ASSERT_TRUE(write_draft(directory_, *draft).ok());
  const auto again = read_draft(directory_, true, nullptr);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->values, draft->values);
  EXPECT_EQ(again->embed_tokens, draft->embed_tokens);
  EXPECT_EQ(again->vocab.target_ids, kMap);
  EXPECT_TRUE(again->config == draft->config);
  const auto file = SafetensorsFile::open(directory_ / "model.safetensors");
  EXPECT_EQ((*file->read_i64("d2t"))[4], 1);  // offsets: draft 4 is target 5
  EXPECT_EQ(file->find("t2d")->dtype, Dtype::kBool);
}

TEST_F(DraftFiles, LayerNumbersOfBothKinds) {
  const auto layers = [](const std::string& name) {
    return draft_config_from_json(*read_json_file(kData + "layers/" + name));
  };
  EXPECT_THAT(layers("draft_by_boundary.json")->aux_layers, ElementsAre(2, 4, 6));
  EXPECT_THAT(layers("draft_last_boundary.json")->aux_layers, ElementsAre(4, 6, 8));
  EXPECT_TRUE(layers("draft_none.json")->aux_layers.empty());
  Json json = *read_json_file(kData + "layers/draft_none.json");
  json["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {1, 3, 5}}};  // outputs of layers
  EXPECT_THAT(draft_config_from_json(json)->aux_layers, ElementsAre(2, 4, 6));
  json["eagle_aux_hidden_state_layer_ids"] = {1, 3, 5};
  EXPECT_THAT(draft_config_from_json(json).status().message(), HasSubstr("different states"));
  json["eagle_aux_hidden_state_layer_ids"] = {-1, 3, 5};
  EXPECT_THAT(draft_config_from_json(json).status().message(), HasSubstr("-1"));
}

TEST_F(DraftFiles, LayerListIsAskedForWhenAbsent) {
  const auto draft = [&](std::vector<std::int32_t> layers) {
    fs::copy_file(kData + "layers/draft_none.json", directory_ / "config.json",
                  fs::copy_options::overwrite_existing);
    fs::copy_file(kData + "names/a_midlayer/model.safetensors", directory_ / "model.safetensors",
                  fs::copy_options::overwrite_existing);
    ReadDraftOptions options;
    options.aux_layers = std::move(layers);
    return read_draft(directory_, options, nullptr);
  };
  EXPECT_THAT(draft({}).status().message(), HasSubstr("--target-layer-ids"));
  EXPECT_THAT(draft({2, 4, 5, 6}).status().message(), HasSubstr("fc.weight has shape [8, 24]"));
  EXPECT_TRUE(draft({2, 4, 5}).ok());
}

TEST(DraftConfigJson, SettingsThatChangeTheArithmeticAreRefused) {
  const auto message = [](auto change) {
    Json json = *read_json_file(kData + "layers/draft_by_boundary.json");
    change(json);
    const auto config = draft_config_from_json(json);
    EXPECT_FALSE(config.ok());
    return config.status().message();
  };
  EXPECT_THAT(message([](Json& j) { j["qkv_bias"] = true; }), HasSubstr("qkv_bias"));
  EXPECT_THAT(message([](Json& j) { j["kv_lora_rank"] = 512; }), HasSubstr("kv_lora_rank"));
  EXPECT_THAT(message([](Json& j) { j["hidden_act"] = "gelu"; }), HasSubstr("gelu"));
  EXPECT_THAT(message([](Json& j) { j["norm_output"] = true; }), HasSubstr("two different things"));
  EXPECT_THAT(message([](Json& j) { j["logits_scaling"] = 8.0; }), HasSubstr("logits_scaling"));
  EXPECT_THAT(message([](Json& j) { j["architectures"] = {"Eagle3DeepseekV2ForCausalLM"}; }),
              HasSubstr("DeepseekV2"));
  EXPECT_THAT(message([](Json& j) { j["rope_scaling"] = {{"rope_type", "spiral"}}; }), HasSubstr("spiral"));
  EXPECT_THAT(message([](Json& j) { j["hidden_size"] = "eight"; }), HasSubstr("hidden_size"));
  EXPECT_THAT(message([](Json& j) { j.erase("vocab_size"); }), HasSubstr("vocab_size"));
  EXPECT_THAT(message([](Json& j) {
                j["eagle_config"] = {{"use_aux_hidden_state", false}};
              }),
              HasSubstr("use_aux_hidden"));
  EXPECT_THAT(message([](Json& j) { j["sliding_window"] = 2048; }), HasSubstr("layer_types"));
}

TEST(DraftConfigJson, EverySettingSurvivesTheRoundTrip) {
  DraftConfig c;
  c.hidden = 64, c.target_hidden = 96, c.num_heads = 4, c.num_kv_heads = 2, c.head_dim = 24,
  c.intermediate = 80;
  c.num_layers = 2, c.vocab = 512, c.draft_vocab = 100, c.aux_layers = {1, 2, 5, 9}, c.rms_norm_eps = 1e-6;
  c.rope.type = "yarn", c.rope.theta = 50000, c.rope.factor = 4,
  c.rope.original_max_position_embeddings = 4096;
  c.rope.mscale = 1, c.rope.mscale_all_dim = 1, c.rope.truncate = false;
  c.max_position_embeddings = 16384, c.norm_before_residual = c.fc_norm = c.norm_output = c.qk_norm = true;
  c.sliding_window = {128, 0}, c.bos_id = 1, c.eos_id = 2, c.verifier_name = "/models/target";
  c.verifier_architecture = "LlamaForCausalLM", c.target_identity = "0123456789abcdef", c.ttt_steps = 5;
  const auto again = draft_config_from_json(draft_config_to_json(c));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_TRUE(*again == c);
}

}  // namespace
}  // namespace eaglet
