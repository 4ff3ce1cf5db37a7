#include "formats/target_model.h"

#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "base/files.h"

namespace eaglet {
namespace {

constexpr int kHidden = 32, kVocab = 12;

std::string temporary(const std::string& name) {
  const std::string directory = testing::TempDir() + "eaglet_target_model";
  std::filesystem::create_directories(directory);
  return directory + "/" + name;
}

/// Without the sync of write_file_atomic: thousands of files are written here.
void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A GGUF with the tensors and keys that a target needs; `change` may alter it before it is written.
struct Tiny {
  gguf_context* file = gguf_init_empty();
  ggml_context* memory = ggml_init({1 << 20, nullptr, false});
  ~Tiny() {
    gguf_free(file);
    ggml_free(memory);
  }
  void add(const char* name, ggml_type type, std::vector<std::int64_t> ne, float first) {
    ggml_tensor* wide = ggml_new_tensor(memory, GGML_TYPE_F32, static_cast<int>(ne.size()), ne.data());
    auto* values = static_cast<float*>(wide->data);
    for (std::int64_t i = 0; i < ggml_nelements(wide); ++i)
      values[i] = first + 0.01f * static_cast<float>(i % 7);
    ggml_tensor* tensor = wide;
    if (type != GGML_TYPE_F32) {
      tensor = ggml_new_tensor(memory, type, static_cast<int>(ne.size()), ne.data());
      ggml_quantize_chunk(type, values, tensor->data, 0, ggml_nrows(wide), ne[0], nullptr);
    }
    ggml_set_name(tensor, name);
    gguf_add_tensor(file, tensor);
  }
};

std::string write_tiny(const std::string& name, const std::function<void(Tiny&)>& change = {},
                       bool tied = false) {
  Tiny tiny;
  gguf_set_val_str(tiny.file, "general.architecture", "llama");
  gguf_set_val_str(tiny.file, "general.name", "tiny");
  gguf_set_val_u32(tiny.file, "llama.block_count", 4);
  gguf_set_val_u32(tiny.file, "llama.embedding_length", kHidden);
  gguf_set_val_u32(tiny.file, "llama.feed_forward_length", 48);
  gguf_set_val_u32(tiny.file, "llama.context_length", 256);
  gguf_set_val_u32(tiny.file, "llama.attention.head_count", 2);
  gguf_set_val_u32(tiny.file, "llama.attention.head_count_kv", 1);
  gguf_set_val_f32(tiny.file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  gguf_set_val_f32(tiny.file, "llama.rope.freq_base", 500000.0f);
  const char* texts[kVocab] = {"<unk>", "<s>", "</s>", "<|im_end|>", "a", "b",
                               "c",     "d",   "e",    "f",          "g", "<think>"};
  const std::int32_t types[kVocab] = {2, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 4};
  gguf_set_arr_str(tiny.file, "tokenizer.ggml.tokens", texts, kVocab);
  gguf_set_arr_data(tiny.file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, kVocab);
  gguf_set_val_u32(tiny.file, "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32(tiny.file, "tokenizer.ggml.eos_token_id", 2);
  tiny.add("token_embd.weight", GGML_TYPE_Q8_0, {kHidden, kVocab}, 0.5f);
  tiny.add("output_norm.weight", GGML_TYPE_F32, {kHidden}, 1.0f);
  if (!tied) tiny.add("output.weight", GGML_TYPE_F16, {kHidden, kVocab}, -0.25f);
  if (change) change(tiny);
  std::string path = temporary(name);
  gguf_write_to_file(tiny.file, path.c_str(), false);
  return path;
}

TEST(TargetModel, FactsAndWeightsOfAnUntiedModel) {
  const std::string path = write_tiny("untied.gguf");
  auto facts = read_target_facts(path);
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(facts->architecture, "llama");
  EXPECT_EQ(facts->num_layers, 4);
  EXPECT_EQ(facts->hidden, kHidden);
  EXPECT_EQ(facts->vocab, kVocab);
  EXPECT_EQ(facts->head_dim, 16);
  EXPECT_EQ(facts->num_kv_heads, 1);
  EXPECT_EQ(facts->rms_norm_eps, 1e-5);
  EXPECT_EQ(facts->rope.theta, 500000.0);
  EXPECT_EQ(facts->rope.type, "default");
  EXPECT_FALSE(facts->tied_head);
  EXPECT_EQ(facts->end_ids, (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(facts->special_ids, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(facts->identity.size(), 16u);
  auto weights = read_target_weights(path);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  ASSERT_EQ(weights->embed_tokens.size(), static_cast<std::size_t>(kHidden * kVocab));
  ASSERT_EQ(weights->lm_head.size(), static_cast<std::size_t>(kHidden * kVocab));
  ASSERT_EQ(weights->final_norm.size(), static_cast<std::size_t>(kHidden));
  for (int i = 0; i < kHidden * kVocab; ++i) {
    EXPECT_NEAR(weights->embed_tokens[i], 0.5f + 0.01f * (i % 7), 0.004f);  // q8_0: half a step of 0.56 / 127
    EXPECT_NEAR(weights->lm_head[i], -0.25f + 0.01f * (i % 7), 0.0002f);
  }
  EXPECT_EQ(weights->final_norm[3], 1.03f);
}

TEST(TargetModel, TiedHeadIsTheEmbedding) {
  const std::string path = write_tiny("tied.gguf", {}, true);
  auto facts = read_target_facts(path);
  auto weights = read_target_weights(path);
  ASSERT_TRUE(facts.ok() && weights.ok());
  EXPECT_TRUE(facts->tied_head);
  EXPECT_TRUE(weights->lm_head.empty());
  EXPECT_EQ(&weights->head(), &weights->embed_tokens);
}

TEST(TargetModel, IdentityFollowsContentNotPath) {
  const auto a = read_target_facts(write_tiny("a.gguf"));
  const auto b = read_target_facts(write_tiny("b.gguf"));
  const auto other = read_target_facts(write_tiny(
      "c.gguf", [](Tiny& tiny) { tiny.add("blk.0.ffn_norm.weight", GGML_TYPE_F32, {kHidden}, 2.0f); }));
  ASSERT_TRUE(a.ok() && b.ok() && other.ok());
  EXPECT_EQ(a->identity, b->identity);
  EXPECT_NE(a->identity, other->identity);
}

TEST(TargetModel, YarnAsKimiHasIt) {
  auto facts = read_target_facts(write_tiny("yarn.gguf", [](Tiny& tiny) {
    gguf_set_val_str(tiny.file, "llama.rope.scaling.type", "yarn");
    gguf_set_val_f32(tiny.file, "llama.rope.scaling.factor", 64.0f);
    gguf_set_val_u32(tiny.file, "llama.rope.scaling.original_context_length", 4096);
    gguf_set_val_f32(tiny.file, "llama.rope.scaling.yarn_log_multiplier", 0.1f);
  }));
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(facts->rope.type, "yarn");
  EXPECT_EQ(facts->rope.factor, 64);
  EXPECT_EQ(facts->rope.mscale, 1);
  EXPECT_EQ(facts->rope.mscale_all_dim, 1);
  EXPECT_EQ(rope_table(facts->rope, 16, 0).attention_scaling, 1.0f);
}

TEST(TargetModel, Llama3IsFoundFromItsDivisors) {
  const RopeConfig llama3{
      .type = "llama3", .theta = 500000.0, .factor = 8, .original_max_position_embeddings = 8192};
  const RopeTable scaled = rope_table(llama3, 16, 0), plain = rope_table({.theta = 500000.0}, 16, 0);
  const auto with_divisors = [&](float last) {
    return [&, last](Tiny& tiny) {
      tiny.add("rope_freqs.weight", GGML_TYPE_F32, {8}, 0);
      auto* at = static_cast<float*>(ggml_get_tensor(tiny.memory, "rope_freqs.weight")->data);
      for (int i = 0; i < 8; ++i) at[i] = plain.inv_freq[i] / scaled.inv_freq[i];
      at[7] *= last;
    };
  };
  auto facts = read_target_facts(write_tiny("llama3.gguf", with_divisors(1)));
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(facts->rope, llama3);
  auto odd = read_target_facts(write_tiny("odd.gguf", with_divisors(2)));
  EXPECT_EQ(odd.status().code(), StatusCode::kConfig) << odd.status().message();
}

TEST(TargetModel, RefusesWhatIsNoTarget) {
  const struct {
    const char* name;
    std::function<void(Tiny&)> change;
    StatusCode code;
    const char* named;
  } cases[] = {
      {"draft", [](Tiny& t) { gguf_set_val_str(t.file, "general.architecture", "eagle3"); },
       StatusCode::kConfig, "draft"},
      {"unknown", [](Tiny& t) { gguf_set_val_str(t.file, "general.architecture", "spiral"); },
       StatusCode::kConfig, "spiral"},
      {"adapter", [](Tiny& t) { gguf_set_val_str(t.file, "general.type", "adapter"); }, StatusCode::kConfig,
       "adapter"},
      {"cap", [](Tiny& t) { gguf_set_val_f32(t.file, "llama.final_logit_softcapping", 30); },
       StatusCode::kConfig, "softcapping"},
      {"longrope", [](Tiny& t) { gguf_set_val_str(t.file, "llama.rope.scaling.type", "longrope"); },
       StatusCode::kConfig, "longrope"},
      {"split", [](Tiny& t) { gguf_set_val_u16(t.file, "split.count", 3); }, StatusCode::kConfig, "split"},
      {"width", [](Tiny& t) { gguf_set_val_u32(t.file, "llama.embedding_length", 64); },
       StatusCode::kDataLoss, "token_embd"},
      {"layers", [](Tiny& t) { gguf_remove_key(t.file, "llama.block_count"); }, StatusCode::kDataLoss,
       "block_count"},
      {"eps", [](Tiny& t) { gguf_remove_key(t.file, "llama.attention.layer_norm_rms_epsilon"); },
       StatusCode::kDataLoss, "epsilon"},
  };
  for (const auto& one : cases) {
    const auto facts = read_target_facts(write_tiny(std::string(one.name) + ".gguf", one.change));
    ASSERT_FALSE(facts.ok()) << one.name;
    EXPECT_EQ(facts.status().code(), one.code) << facts.status().message();
    EXPECT_NE(facts.status().message().find(one.named), std::string::npos) << facts.status().message();
    EXPECT_FALSE(facts.status().where().empty());
    EXPECT_FALSE(facts.status().todo().empty());
  }
}

TEST(TargetModel, MissingAndForeignFiles) {
  EXPECT_EQ(read_target_facts("/no/such/model.gguf").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_target_facts(testing::TempDir()).status().code(), StatusCode::kDataLoss);
  const std::string path = temporary("text.gguf");
  ASSERT_TRUE(write_file_atomic(path, "{\"this\": \"is json\"}").ok());
  const auto text = read_target_facts(path);
  EXPECT_EQ(text.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(text.status().what().find("not a GGUF"), std::string::npos);
  ASSERT_TRUE(write_file_atomic(path, "").ok());
  EXPECT_EQ(read_target_facts(path).status().code(), StatusCode::kDataLoss);
}

TEST(TargetModel, CutAnywhereItIsDataLoss) {
  const std::string whole = *read_file(write_tiny("whole.gguf"));
  const std::string path = temporary("cut.gguf");
  // Padding after the last tensor may go; everything before is needed.
  for (std::size_t bytes = 0; bytes + 32 < whole.size(); bytes += bytes < 1200 ? 3 : 37) {
    write(path, whole.substr(0, bytes));
    const auto weights = read_target_weights(path);
    ASSERT_FALSE(weights.ok()) << bytes;
    EXPECT_EQ(weights.status().code(), StatusCode::kDataLoss) << weights.status().message();
  }
}

TEST(TargetModel, FlippedBytesNeverCrash) {
  const std::string whole = *read_file(write_tiny("flip.gguf"));
  const std::string path = temporary("flipped.gguf");
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); at += at < 1200 ? 1 : 41) {
    const unsigned char masks[] = {0x01, 0x80, 0xff};
    std::string bytes = whole;
    bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ masks[at % 3]);
    write(path, bytes);
    const auto weights = read_target_weights(path);
    if (!weights.ok()) {
      ++refused;
      EXPECT_FALSE(weights.status().what().empty());
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(TargetModel, SampleModel) {
  if (!path_exists(EAGLET_SAMPLE_MODEL)) GTEST_SKIP() << "no sample model at " << EAGLET_SAMPLE_MODEL;
  auto facts = read_target_facts(EAGLET_SAMPLE_MODEL);
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(facts->num_layers, 30);
  EXPECT_EQ(facts->hidden, 576);
  EXPECT_EQ(facts->vocab, 49152);
  EXPECT_EQ(facts->num_heads, 9);
  EXPECT_EQ(facts->num_kv_heads, 3);
  EXPECT_EQ(facts->head_dim, 64);
  EXPECT_EQ(facts->intermediate, 1536);
  EXPECT_EQ(facts->rope.theta, 100000.0);
  EXPECT_TRUE(facts->tied_head);
  EXPECT_EQ(facts->eos_id, 2);
  EXPECT_EQ(facts->end_ids, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(facts->special_ids.size(), 17u);
  auto weights = read_target_weights(EAGLET_SAMPLE_MODEL);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->embed_tokens.size(), std::size_t{49152} * 576);
}

}  // namespace
}  // namespace eaglet
