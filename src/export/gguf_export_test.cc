#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/files.h"
#include "base/hash.h"
#include "base/rng.h"
#include "common.h"
#include "export/export.h"
#include "export/gguf_writer.h"

// libllama exports these two for its speculative code; their header is not among the installed ones.
void llama_set_embeddings_nextn(llama_context* context, bool value, bool masked);
float* llama_get_embeddings_nextn(llama_context* context);

// The written file is proved in libllama itself: its logits for a tiny random draft are compared with a plain
// calculation of the draft's first step from the same weights. A wrong row order, rotary setting, map or norm
// shows up there.
namespace eaglet {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;
using Vector = std::vector<float>;

constexpr std::int64_t kVocab = 96, kHidden = 32, kLayers = 4;

Vector random(std::uint64_t seed, std::int64_t n, double deviation, double mean = 0) {
  Rng rng(seed);
  Vector values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(mean + deviation * rng.normal());
  return values;
}

/// A llama of 4 layers with random weights and a tokenizer of 96 pieces.
void write_tiny_target(const std::string& path) {
  const GgufPtr gguf(gguf_init_empty());
  const auto set = [&](const char* key, std::uint32_t value) { gguf_set_val_u32(gguf.get(), key, value); };
  gguf_set_val_str(gguf.get(), "general.architecture", "llama");
  gguf_set_val_str(gguf.get(), "general.name", "tiny");
  set("llama.block_count", kLayers), set("llama.context_length", 256), set("llama.embedding_length", kHidden);
  set("llama.feed_forward_length", 64), set("llama.attention.head_count", 4),
      set("llama.attention.head_count_kv", 2);
  set("llama.rope.dimension_count", 8), set("llama.vocab_size", kVocab);
  gguf_set_val_f32(gguf.get(), "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<std::string> pieces;
  std::vector<const char*> texts;
  for (std::int64_t i = 0; i < kVocab; ++i) {
    pieces.push_back(i == 0 ? "<unk>" : i == 1 ? "<s>" : i == 2 ? "</s>" : fmt::format("t{}", i));
  }
  for (const std::string& piece : pieces) texts.push_back(piece.c_str());
  const Vector scores(kVocab, 0.0f);
  std::vector<std::int32_t> types(kVocab, 1);
  types[0] = 2, types[1] = types[2] = 3;
  gguf_set_val_str(gguf.get(), "tokenizer.ggml.model", "llama");
  gguf_set_arr_str(gguf.get(), "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(gguf.get(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(gguf.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  set("tokenizer.ggml.bos_token_id", 1), set("tokenizer.ggml.eos_token_id", 2);

  std::vector<Vector> values;
  std::vector<GgufOutput> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    const std::int64_t n = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    values.push_back(shape.size() == 1 ? Vector(static_cast<std::size_t>(n), 1.0f)
                                       : random(xxh64(name), n, 0.1));
    tensors.push_back({name, GGML_TYPE_F32, std::move(shape), nullptr});
  };
  add("token_embd.weight", {kVocab, kHidden});
  add("output_norm.weight", {kHidden});
  for (int i = 0; i < kLayers; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    add(block + "attn_norm.weight", {kHidden}), add(block + "ffn_norm.weight", {kHidden});
    add(block + "attn_q.weight", {32, kHidden}), add(block + "attn_k.weight", {16, kHidden});
    add(block + "attn_v.weight", {16, kHidden}), add(block + "attn_output.weight", {kHidden, 32});
    add(block + "ffn_gate.weight", {64, kHidden}), add(block + "ffn_up.weight", {64, kHidden});
    add(block + "ffn_down.weight", {kHidden, 64});
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = values[i].data();
  ASSERT_TRUE(write_gguf(gguf.get(), tensors, path).ok());
}

DraftWeights tiny_draft(DraftConfig c) {
  DraftVocab vocab;
  vocab.target_vocab = kVocab;
  for (std::int32_t i = 0; i < kVocab; i += c.draft_vocab == kVocab ? 1 : 2) vocab.target_ids.push_back(i);
  DraftWeights draft{c, vocab, parameter_table(c, false), {}, {}};
  for (const ParameterInfo& info : draft.table) {
    const bool norm = info.shape.size() == 1;
    const Vector part = random(xxh64(info.name), info.elements, norm ? 0.3 : 0.2, norm ? 1.0 : 0.0);
    draft.values.insert(draft.values.end(), part.begin(), part.end());
  }
  return draft;
}

DraftConfig tiny_config() {
  DraftConfig c;
  c.hidden = c.target_hidden = kHidden;
  c.num_heads = 4, c.num_kv_heads = 2, c.head_dim = 12, c.intermediate = 40, c.vocab = kVocab,
  c.draft_vocab = kVocab / 2;
  c.aux_layers = {1, 2, 4};
  c.max_position_embeddings = 256;
  return c;
}

// --- the draft's first step, plainly
// -------------------------------------------------------------------------------------

Vector times(const DraftWeights& d, const std::string& name, const Vector& x) {
  const ParameterInfo& info = *d.find(name);
  const float* w = d.data(name);
  Vector y(static_cast<std::size_t>(info.shape[0]));
  for (std::size_t r = 0; r < y.size(); ++r)
    y[r] = std::inner_product(x.begin(), x.end(), w + r * x.size(), 0.0f);
  return y;
}

Vector normed(const DraftWeights& d, const std::string& name, const Vector& x) {
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + d.config.rms_norm_eps);
  Vector y(x);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(x[i] * scale * d.data(name)[i]);
  return y;
}

Vector plus(Vector a, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

void rotate(Vector& x, const DraftConfig& c, const RopeTable& rope, int position) {
  const auto half = static_cast<std::size_t>(c.head_dim / 2);
  for (std::size_t head = 0; head < x.size() / (2 * half); ++head) {
    for (std::size_t i = 0; i < half; ++i) {
      float &a = x[head * 2 * half + i], &b = x[head * 2 * half + half + i];
      const double angle = position * static_cast<double>(rope.inv_freq[i]);
      const double cos = std::cos(angle) * rope.attention_scaling,
                   sin = std::sin(angle) * rope.attention_scaling;
      const double first = a * cos - b * sin, second = b * cos + a * sin;
      a = static_cast<float>(first), b = static_cast<float>(second);
    }
  }
}

Vector attention(const DraftConfig& c, const Vector& q, const std::vector<Vector>& k,
                 const std::vector<Vector>& v) {
  const auto size = static_cast<std::size_t>(c.head_dim);
  Vector out(q.size(), 0.0f);
  for (std::size_t head = 0; head < static_cast<std::size_t>(c.num_heads); ++head) {
    const std::size_t kv =
        head * static_cast<std::size_t>(c.num_kv_heads) / static_cast<std::size_t>(c.num_heads);
    std::vector<double> weight(k.size());
    double total = 0;
    for (std::size_t j = 0; j < k.size(); ++j) {
      double dot = 0;
      for (std::size_t i = 0; i < size; ++i) dot += q[head * size + i] * k[j][kv * size + i];
      total += weight[j] = std::exp(dot / std::sqrt(static_cast<double>(size)));
    }
    for (std::size_t j = 0; j < k.size(); ++j) {
      for (std::size_t i = 0; i < size; ++i)
        out[head * size + i] += static_cast<float>(weight[j] / total * v[j][kv * size + i]);
    }
  }
  return out;
}

/// Logits over the draft vocabulary of the last row.
Vector plain_logits(const DraftWeights& d, const Vector& embedding, const std::vector<int>& tokens,
                    const std::vector<Vector>& aux) {
  const DraftConfig& c = d.config;
  const RopeTable rope = rope_table(c.rope, c.head_dim, c.max_position_embeddings);
  std::vector<Vector> keys, values;
  Vector logits;
  for (std::size_t p = 0; p < tokens.size(); ++p) {
    const Vector h =
        times(d, "fc.weight", c.norm_before_fc ? normed(d, "input_norm.weight", aux[p]) : aux[p]);
    const Vector e(embedding.begin() + tokens[p] * kHidden, embedding.begin() + (tokens[p] + 1) * kHidden);
    Vector input = normed(d, "layers.0.input_layernorm.weight", e);
    const Vector h_normed = normed(d, "layers.0.hidden_norm.weight", h);
    input.insert(input.end(), h_normed.begin(), h_normed.end());
    Vector q = times(d, "layers.0.self_attn.q_proj.weight", input),
           k = times(d, "layers.0.self_attn.k_proj.weight", input);
    rotate(q, c, rope, static_cast<int>(p)), rotate(k, c, rope, static_cast<int>(p));
    keys.push_back(k), values.push_back(times(d, "layers.0.self_attn.v_proj.weight", input));
    const Vector attended = times(d, "layers.0.self_attn.o_proj.weight", attention(c, q, keys, values));
    const Vector middle = plus(attended, c.norm_before_residual ? h_normed : h);
    const Vector x = normed(d, "layers.0.post_attention_layernorm.weight", middle);
    Vector gate = times(d, "layers.0.mlp.gate_proj.weight", x);
    const Vector up = times(d, "layers.0.mlp.up_proj.weight", x);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    logits = times(d, "lm_head.weight",
                   normed(d, "norm.weight", plus(middle, times(d, "layers.0.mlp.down_proj.weight", gate))));
  }
  return logits;
}

// --- the same through libllama
// ---------------------------------------------------------------------------------------------

struct Llama {
  explicit Llama(const std::string& path, llama_context* other = nullptr) {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    model.reset(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
    if (model == nullptr) return;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 64, params.n_threads = 1, params.n_threads_batch = 1, params.ctx_other = other;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // it would work in fp16
    context.reset(llama_init_from_model(model.get(), params));
  }
  llama_model_ptr model;
  llama_context_ptr context;
};

Vector llama_logits(llama_context* context, const std::vector<int>& tokens, const std::vector<Vector>& aux) {
  llama_set_embeddings_nextn(context, true, /*masked=*/false);
  common_batch encoder(context), decoder(context);
  for (std::size_t p = 0; p < aux.size(); ++p) {
    const llama_pos position = static_cast<llama_pos>(p);
    encoder.add_embd({aux[p].data(), 1, aux[p].size()}, &position, 0, true);
  }
  EXPECT_EQ(llama_process(context, LLAMA_PROCESS_TYPE_ENCODE, encoder.get()), 0);
  const float* fused = llama_get_embeddings_nextn(context);
  const Vector states(fused, fused + aux.size() * kHidden);
  for (std::size_t p = 0; p < tokens.size(); ++p) {
    // Every row is an output: the graph of this architecture does not gather the asked ones.
    const int index = decoder.add(tokens[p], static_cast<llama_pos>(p), 0, true);
    decoder.set_embd(index, {states.data() + p * kHidden, 1, kHidden});
  }
  EXPECT_EQ(llama_process(context, LLAMA_PROCESS_TYPE_DECODE, decoder.get()), 0);
  const float* logits = llama_get_logits_ith(context, -1);
  return Vector(logits, logits + kVocab);
}

class GgufExport : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("eaglet_export_test_" + std::to_string(getpid()));
    fs::create_directories(directory_);
    target_ = directory_ / "target.gguf";
    path_ = directory_ / "draft.gguf";
    write_tiny_target(target_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  void expect_same_logits(const DraftWeights& draft, GgufType type, double tolerance) {
    const Status status = export_gguf(draft, target_, type, path_);
    ASSERT_TRUE(status.ok()) << status.message();
    const Llama target(target_);
    ASSERT_NE(target.context, nullptr);
    const Llama served(path_, target.context.get());
    ASSERT_NE(served.context, nullptr);
    const std::vector<int> tokens = {5, 90, 17, 3, 44, 8, 71};
    std::vector<Vector> aux;
    for (std::size_t p = 0; p < tokens.size(); ++p) aux.push_back(random(100 + p, 3 * kHidden, 1.0));
    const Vector embedding = draft.embed_tokens.empty()
                                 ? random(xxh64("token_embd.weight"), kVocab * kHidden, 0.1)
                                 : draft.embed_tokens;
    const Vector expected = plain_logits(draft, embedding, tokens, aux);
    const Vector got = llama_logits(served.context.get(), tokens, aux);
    double largest = 0;
    for (const float v : expected) largest = std::max(largest, std::abs(static_cast<double>(v)));
    ASSERT_GT(largest, 0.5);  // the comparison means something
    const std::vector<std::int32_t> to_draft = draft.vocab.target_to_draft();
    for (std::size_t id = 0; id < got.size(); ++id) {
      if (to_draft[id] < 0) {
        EXPECT_EQ(got[id], -INFINITY) << id;
      } else {
        EXPECT_NEAR(got[id], expected[static_cast<std::size_t>(to_draft[id])], tolerance * largest) << id;
      }
    }
  }

  fs::path directory_;
  std::string target_, path_;
};

TEST_F(GgufExport, PlainDraft) {
  expect_same_logits(tiny_draft(tiny_config()), GgufType::kF32, 1e-4);
}

TEST_F(GgufExport, SixteenAndEightBits) {
  expect_same_logits(tiny_draft(tiny_config()), GgufType::kF16, 5e-3);
  expect_same_logits(tiny_draft(tiny_config()), GgufType::kQ8_0, 3e-2);
}

TEST_F(GgufExport, NormsBeforeFcAndResidual) {
  DraftConfig c = tiny_config();
  c.norm_before_fc = c.norm_before_residual = true;
  expect_same_logits(tiny_draft(c), GgufType::kF32, 1e-4);
}

TEST_F(GgufExport, FullVocabularyAndOwnEmbedding) {
  DraftConfig c = tiny_config();
  c.draft_vocab = kVocab;
  DraftWeights draft = tiny_draft(c);
  draft.embed_tokens = random(77, kVocab * kHidden, 0.3);
  expect_same_logits(draft, GgufType::kF32, 1e-4);
}

TEST_F(GgufExport, EveryKindOfRope) {
  DraftConfig c = tiny_config();
  c.rope.theta = 500;  // so that seven positions turn the slow pairs too
  c.rope.original_max_position_embeddings = 16;
  for (const char* type : {"default", "linear", "llama3", "yarn"}) {
    SCOPED_TRACE(type);
    c.rope.type = type;
    c.rope.factor = c.rope.type == "default" ? 1 : 4;
    expect_same_logits(tiny_draft(c), GgufType::kF32, 1e-4);
  }
  c.rope.beta_fast = 4, c.rope.beta_slow = 0.5, c.rope.truncate = false, c.rope.attention_factor = 1.3;
  expect_same_logits(tiny_draft(c), GgufType::kF32, 1e-4);
}

TEST_F(GgufExport, WhatLlamaCppCannotServeIsRefused) {
  const auto message = [&](auto change) {
    DraftConfig c = tiny_config();
    change(c);
    return export_gguf(tiny_draft(c), target_, GgufType::kF32, path_).message();
  };
  EXPECT_THAT(message([](DraftConfig& c) { c.num_layers = 2; }), HasSubstr("2 layers"));
  EXPECT_THAT(message([](DraftConfig& c) { c.aux_layers = {0, 1, 2, 4}; }), HasSubstr("4 captured layers"));
  EXPECT_THAT(message([](DraftConfig& c) { c.fc_norm = true; }), HasSubstr("fc_norm"));
  EXPECT_THAT(message([](DraftConfig& c) { c.norm_output = true; }), HasSubstr("norm_output"));
  EXPECT_THAT(message([](DraftConfig& c) { c.qk_norm = true; }), HasSubstr("q_norm"));
  EXPECT_THAT(message([](DraftConfig& c) { c.sliding_window = {8}; }), HasSubstr("window of 8"));
  EXPECT_THAT(message([](DraftConfig& c) {
                c.aux_layers = {1, 2, 5};
              }),
              HasSubstr("layer 5 of a target with 4"));
  EXPECT_THAT(message([](DraftConfig& c) { c.target_hidden = 48; }), HasSubstr("width 48"));
  EXPECT_THAT(message([](DraftConfig& c) { c.hidden = 48; }), HasSubstr("no embedding of its own"));
  EXPECT_FALSE(path_exists(path_));
  EXPECT_EQ(export_gguf(tiny_draft(tiny_config()), directory_ / "none.gguf", GgufType::kF32, path_).code(),
            StatusCode::kNotFound);
}

TEST_F(GgufExport, HeaderSaysWhatTheLoaderAsksFor) {
  ASSERT_TRUE(export_gguf(tiny_draft(tiny_config()), target_, GgufType::kQ8_0, path_).ok());
  const GgufPtr gguf(gguf_init_from_file(path_.c_str(), {true, nullptr}));
  const auto key = [&](const char* name) { return gguf_find_key(gguf.get(), name); };
  const auto type = [&](const char* name) {
    return gguf_get_tensor_type(gguf.get(), gguf_find_tensor(gguf.get(), name));
  };
  EXPECT_STREQ(gguf_get_val_str(gguf.get(), key("general.architecture")), "eagle3");
  const auto* layers =
      static_cast<const std::int32_t*>(gguf_get_arr_data(gguf.get(), key("eagle3.target_layers")));
  EXPECT_THAT(std::vector<std::int32_t>(layers, layers + 3), testing::ElementsAre(1, 2, 4));
  EXPECT_EQ(gguf_get_val_u32(gguf.get(), key("eagle3.target_hidden_size")), 32u);
  EXPECT_EQ(gguf_get_arr_n(gguf.get(), key("tokenizer.ggml.tokens")), 96u);
  EXPECT_EQ(key("llama.block_count"), -1);  // of the target only the tokenizer
  EXPECT_EQ(type("fc.weight"), GGML_TYPE_Q8_0);
  EXPECT_EQ(type("blk.0.attn_norm_2.weight"), GGML_TYPE_F32);
  EXPECT_EQ(type("blk.0.ffn_down.weight"), GGML_TYPE_F16);  // rows of 40 do not divide into blocks of 32
  EXPECT_EQ(type("d2t"), GGML_TYPE_I64);
}

}  // namespace
}  // namespace eaglet
