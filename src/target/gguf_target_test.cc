#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files.h"
#include "formats/safetensors.h"
#include "target/target_forward.h"

namespace eaglet {
namespace {

// States of the sample model by the transformers library, in fp32 (testdata/extract/README.md).
TEST(GgufTarget, StatesOfTheSampleModelAreTransformers) {
  if (!path_exists(EAGLET_SAMPLE_MODEL))
    GTEST_SKIP() << "the sample model is not there (scripts/setup fetches it)";
  auto forward = TargetForward::open(EAGLET_SAMPLE_MODEL);
  ASSERT_TRUE(forward.ok()) << forward.status().what();
  const std::int64_t layers = (*forward)->config().num_layers;
  const auto width = static_cast<std::size_t>((*forward)->config().hidden);
  const std::map<std::int64_t, std::string> slots = {
      {2, "state_2"}, {15, "state_15"}, {27, "state_27"}, {layers, "state_last"}};
  for (const char* name : {"p0000", "p0001"}) {
    const auto file =
        SafetensorsFile::open(std::string(EAGLET_TESTDATA) + "/extract/" + name + ".safetensors");
    ASSERT_TRUE(file.ok());
    const auto ids = *file->read_i64("input_ids");
    const std::vector<std::int32_t> document(ids.begin(), ids.end());
    double least = 1;
    const Status ran = (*forward)->run({&document}, layers, [&](std::int64_t k, const float* x) {
      if (!slots.contains(k)) return Status();
      const auto wanted = *file->read_f32(slots.at(k));
      for (std::size_t t = 0; t < document.size(); ++t) {
        double ab = 0, aa = 0, bb = 0;
        for (std::size_t i = t * width; i < (t + 1) * width; ++i) {
          const double a = wanted[i], b = x[i];
          ab += a * b, aa += a * a, bb += b * b;
        }
        least = std::min(least, ab / std::sqrt(aa * bb));
      }
      return Status();
    });
    ASSERT_TRUE(ran.ok()) << ran.what();
    EXPECT_GE(least, 0.99999) << name;
  }
}

// The golden model of experts as llama.cpp's converter would lay it out: all experts of a layer in one
// tensor.
class GgufOfExperts {
 public:
  explicit GgufOfExperts(const SafetensorsFile& from) : from_(from) {
    context_ = ggml_init({std::size_t{8} << 20, nullptr, false});
    gguf_ = gguf_init_empty();
  }
  ~GgufOfExperts() {
    gguf_free(gguf_);
    ggml_free(context_);
  }
  void set(const char* key, std::uint32_t value) {
    gguf_set_val_u32(gguf_, (std::string("qwen3moe.") + key).c_str(), value);
  }
  void set(const char* key, float value) {
    gguf_set_val_f32(gguf_, (std::string("qwen3moe.") + key).c_str(), value);
  }
  void add(const std::string& as, const std::vector<std::string>& names) {
    const SafetensorsEntry* first = from_.find(names[0]);
    ASSERT_NE(first, nullptr) << names[0];
    std::int64_t ne[3] = {first->shape.back(), first->shape.size() > 1 ? first->shape[0] : 1,
                          static_cast<std::int64_t>(names.size())};
    ggml_tensor* tensor = ggml_new_tensor(context_, GGML_TYPE_F32,
                                          names.size() > 1 ? 3 : static_cast<int>(first->shape.size()), ne);
    ggml_set_name(tensor, as.c_str());
    char* to = static_cast<char*>(tensor->data);
    for (const std::string& name : names) {
      const auto values = *from_.read_f32(name);
      std::memcpy(to, values.data(), 4 * values.size());
      to += 4 * values.size();
    }
    gguf_add_tensor(gguf_, tensor);
  }
  void write(const std::string& path) {
    gguf_set_val_str(gguf_, "general.architecture", "qwen3moe");
    ASSERT_TRUE(gguf_write_to_file(gguf_, path.c_str(), false));
  }

 private:
  const SafetensorsFile& from_;
  ggml_context* context_;
  gguf_context* gguf_;
};

void write_gguf_of_experts(const std::string& folder, const std::string& path) {
  const auto from = SafetensorsFile::open(folder + "/model.safetensors");
  ASSERT_TRUE(from.ok());
  GgufOfExperts to(*from);
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, std::uint32_t>>{{"block_count", 5},
                                                          {"embedding_length", 32},
                                                          {"attention.head_count", 4},
                                                          {"attention.head_count_kv", 2},
                                                          {"attention.key_length", 8},
                                                          {"attention.value_length", 8},
                                                          {"feed_forward_length", 64},
                                                          {"context_length", 128},
                                                          {"vocab_size", 96},
                                                          {"expert_count", 8},
                                                          {"expert_used_count", 2},
                                                          {"expert_feed_forward_length", 24}})
    to.set(key, value);
  to.set("attention.layer_norm_rms_epsilon", 1e-5f);
  to.set("rope.freq_base", 10000.0f);
  to.add("token_embd.weight", {"model.embed_tokens.weight"});
  to.add("output_norm.weight", {"model.norm.weight"});
  to.add("output.weight", {"lm_head.weight"});
  for (int layer = 0; layer < 5; ++layer) {
    const std::string ours = "model.layers." + std::to_string(layer) + ".",
                      theirs = "blk." + std::to_string(layer) + ".";
    for (const auto& [a, b] :
         std::vector<std::pair<std::string, std::string>>{{"attn_norm", "input_layernorm"},
                                                          {"ffn_norm", "post_attention_layernorm"},
                                                          {"attn_q", "self_attn.q_proj"},
                                                          {"attn_k", "self_attn.k_proj"},
                                                          {"attn_v", "self_attn.v_proj"},
                                                          {"attn_output", "self_attn.o_proj"},
                                                          {"attn_q_norm", "self_attn.q_norm"},
                                                          {"attn_k_norm", "self_attn.k_norm"},
                                                          {"ffn_gate_inp", "mlp.gate"}})
      to.add(theirs + a + ".weight", {ours + b + ".weight"});
    for (const std::string part : {"gate", "up", "down"}) {
      std::vector<std::string> experts;
      for (int e = 0; e < 8; ++e)
        experts.push_back(ours + "mlp.experts." + std::to_string(e) + "." + part + "_proj.weight");
      to.add(theirs + "ffn_" + part + "_exps.weight", experts);
    }
  }
  to.write(path);
}

TEST(GgufTarget, ExpertsInOneTensorAreTheGoldenModel) {
  const std::string folder = std::string(EAGLET_TESTDATA) + "/golden_targets/qwen3_moe",
                    path = testing::TempDir() + "/qwen3moe.gguf";
  write_gguf_of_experts(folder, path);
  auto of_gguf = TargetForward::open(path), of_folder = TargetForward::open(folder);
  ASSERT_TRUE(of_gguf.ok()) << of_gguf.status().what();
  ASSERT_TRUE(of_folder.ok());
  std::vector<std::int32_t> document;
  for (std::int32_t t = 0; t < 40; ++t) document.push_back(t * 7 % 96);
  std::vector<std::vector<float>> seen[2];
  for (int which = 0; which < 2; ++which) {
    TargetForward& forward = which == 0 ? **of_gguf : **of_folder;
    const Status ran = forward.run({&document}, 5, [&](std::int64_t, const float* x) {
      seen[which].emplace_back(x, x + 40 * 32);
      return Status();
    });
    ASSERT_TRUE(ran.ok()) << ran.what();
  }
  EXPECT_EQ(seen[0], seen[1]);  // the same weights: the same bits
}

}  // namespace
}  // namespace eaglet
