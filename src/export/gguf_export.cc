#include <fmt/format.h>

#include <cmath>
#include <new>

#include "draft/draft_gguf.h"
#include "export/export.h"
#include "export/gguf_writer.h"

namespace eaglet {
namespace {

constexpr const char* kPlain =
    "for llama.cpp train one layer on three captured layers without fc_norm, q/k norms and biases; "
    "or export to the speculators layout for vLLM";

Status refuse(std::string what, std::string todo = kPlain) {
  return Status(StatusCode::kConfig, "llama.cpp cannot serve this draft: " + what, {}, std::move(todo));
}

// What has no place in llama.cpp's files. What it would only ignore is a warning (loader_warnings.h).
Status check_servable(const DraftConfig& c) {
  if (c.num_layers != 1) return refuse(fmt::format("it has {} layers, llama.cpp runs one", c.num_layers));
  if (c.num_aux() != 3)
    return refuse(fmt::format("it reads {} captured layers, llama.cpp feeds three", c.num_aux()));
  if (c.fc_norm) return refuse("fc_norm (a norm per captured layer) is unknown there");
  if (c.qk_norm) return refuse("q_norm and k_norm are unknown there");
  if (c.attention_bias || c.mlp_bias) return refuse("biases have no place in its tensor list");
  return {};
}

// What llama.cpp would run all the same, with other results (loader_warnings.h).
Status check_ignored(const DraftConfig& c) {
  if (c.norm_output) return refuse("norm_output (the normed state is carried on) is unknown there");
  for (const std::int64_t window : c.sliding_window)
    if (window > 0)
      return refuse(fmt::format("it attends within a window of {}; llama.cpp always attends to all", window));
  return {};
}

Status check_target(const DraftWeights& draft, const GgufTarget& target) {
  const DraftConfig& c = draft.config;
  const std::string todo = "give the GGUF of the model that the draft was trained for";
  if (c.target_hidden != target.hidden) {
    return refuse(
        fmt::format("it reads states of width {}, the target's are {}", c.target_hidden, target.hidden),
        todo);
  }
  if (c.vocab != target.vocab) {
    return refuse(fmt::format("it was made for {} tokens, the target has {}", c.vocab, target.vocab), todo);
  }
  if (c.aux_layers.back() > target.num_layers) {
    return refuse(
        fmt::format("it reads layer {} of a target with {}", c.aux_layers.back(), target.num_layers), todo);
  }
  if (c.hidden != target.hidden && draft.embed_tokens.empty()) {
    return refuse("it is of another width than the target and has no embedding of its own");
  }
  return {};
}

// The rotary settings, whatever their type, as llama.cpp's general form: one divisor per frequency (the
// tensor rope_freqs) and one factor on cos and sin. Its own yarn cannot be told beta_fast, beta_slow or
// mscale for this architecture.
std::vector<float> rope_divisors(const DraftConfig& c, const RopeTable& table) {
  std::vector<float> divisors(table.inv_freq.size());
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double plain =
        std::pow(c.rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
    divisors[i] = static_cast<float>(plain / table.inv_freq[i]);
  }
  return divisors;
}

void set_metadata(gguf_context* gguf, const DraftConfig& c, const GgufTarget& target, float attention_scaling,
                  int file_type) {
  const auto set = [gguf](const char* key, std::int64_t value) {
    gguf_set_val_u32(gguf, key, static_cast<std::uint32_t>(value));
  };
  gguf_set_val_str(gguf, "general.architecture", "eagle3");
  gguf_set_val_str(gguf, "general.type", "model");
  gguf_set_val_str(gguf, "general.name",
                   ("EAGLE-3 draft for " + (target.name.empty() ? "a target" : target.name)).c_str());
  gguf_set_val_u32(gguf, "general.file_type", static_cast<std::uint32_t>(file_type));
  gguf_set_val_u32(gguf, "general.quantization_version", GGML_QNT_VERSION);
  set("eagle3.block_count", 1);
  set("eagle3.context_length", c.max_position_embeddings);
  set("eagle3.embedding_length", c.hidden);
  set("eagle3.feed_forward_length", c.intermediate);
  set("eagle3.attention.head_count", c.num_heads);
  set("eagle3.attention.head_count_kv", c.num_kv_heads);
  set("eagle3.attention.key_length", c.head_dim);
  set("eagle3.attention.value_length", c.head_dim);
  gguf_set_val_f32(gguf, "eagle3.attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
  set("eagle3.vocab_size", c.vocab);
  set("eagle3.rope.dimension_count", c.head_dim);
  gguf_set_val_f32(gguf, "eagle3.rope.freq_base", static_cast<float>(c.rope.theta));
  gguf_set_val_str(gguf, "eagle3.rope.scaling.type", "none");
  if (attention_scaling != 1.0f) gguf_set_val_f32(gguf, "eagle3.rope.scaling.attn_factor", attention_scaling);
  gguf_set_arr_data(gguf, "eagle3.target_layers", GGUF_TYPE_INT32, c.aux_layers.data(), c.aux_layers.size());
  set("eagle3.target_hidden_size", c.target_hidden);
  gguf_set_val_bool(gguf, "eagle3.norm_before_residual", c.norm_before_residual);
  gguf_set_val_bool(gguf, "eagle3.norm_before_fc", c.norm_before_fc);
}

// The draft speaks the target's tokens: every tokenizer.* key, byte for byte.
void copy_tokenizer(const gguf_context* target, gguf_context* draft) {
  const GgufPtr tokenizer(gguf_init_empty());
  gguf_set_kv(tokenizer.get(), target);
  for (std::int64_t i = gguf_get_n_kv(tokenizer.get()) - 1; i >= 0; --i) {
    const std::string key = gguf_get_key(tokenizer.get(), i);
    if (key.rfind("tokenizer.", 0) != 0) gguf_remove_key(tokenizer.get(), key.c_str());
  }
  gguf_set_kv(draft, tokenizer.get());
}

// llama.cpp rotates neighbouring pairs for this architecture (rope type "norm"), we rotate halves: row j*D/2
// + i of a head becomes row 2*i + j.
std::vector<float> interleave_rows(const float* weights, std::int64_t heads, std::int64_t head_dim,
                                   std::int64_t columns) {
  std::vector<float> result(static_cast<std::size_t>(heads * head_dim * columns));
  const std::int64_t half = head_dim / 2;
  for (std::int64_t row = 0; row < heads * head_dim; ++row) {
    const std::int64_t head = row / head_dim, within = row % head_dim;
    const std::int64_t to = head * head_dim + 2 * (within % half) + within / half;
    std::copy_n(weights + row * columns, columns, result.begin() + to * columns);
  }
  return result;
}

class TensorList {
 public:
  TensorList(const DraftWeights& draft, ggml_type type) : draft_(draft), type_(type) {}

  void add_weight(const std::string& ours, const std::string& theirs) {
    add(theirs, draft_.find(ours)->shape, draft_.data(ours));
  }
  void add(const std::string& name, const std::vector<std::int64_t>& shape, const float* data) {
    list.push_back({name, type_of(shape), shape, data});
  }
  std::vector<GgufOutput> list;

 private:
  // Norms stay fp32. Blocks of Q8_0 hold 32 numbers of a row; rows that do not divide stay 16-bit.
  ggml_type type_of(const std::vector<std::int64_t>& shape) const {
    if (shape.size() == 1) return GGML_TYPE_F32;
    return shape[1] % ggml_blck_size(type_) == 0 ? type_ : GGML_TYPE_F16;
  }
  const DraftWeights& draft_;
  ggml_type type_;
};

void add_block(TensorList& tensors) {
  const struct {
    const char *ours, *theirs;
  } names[] = {{"input_layernorm", "attn_norm"},
               {"hidden_norm", "attn_norm_2"},
               {"self_attn.v_proj", "attn_v"},
               {"self_attn.o_proj", "attn_output"},
               {"post_attention_layernorm", "ffn_norm"},
               {"mlp.gate_proj", "ffn_gate"},
               {"mlp.up_proj", "ffn_up"},
               {"mlp.down_proj", "ffn_down"}};
  for (const auto& n : names) {
    tensors.add_weight(fmt::format("layers.0.{}.weight", n.ours), fmt::format("blk.0.{}.weight", n.theirs));
  }
}

struct FileType {
  ggml_type tensor;
  int number;  // llama_ftype
};
FileType file_type(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return {GGML_TYPE_F32, 0};
    case GgufType::kF16:
      return {GGML_TYPE_F16, 1};
    case GgufType::kQ8_0:
      break;
  }
  return {GGML_TYPE_Q8_0, 7};
}

Status write_draft_gguf(const DraftWeights& draft, const GgufTarget& target, GgufType type,
                        const std::string& path) {
  const DraftConfig& c = draft.config;
  const FileType file = file_type(type);
  TensorList tensors(draft, file.tensor);
  tensors.add_weight("fc.weight", "fc.weight");
  if (c.norm_before_fc) tensors.add_weight("input_norm.weight", "enc.output_norm.weight");
  add_block(tensors);
  const auto& q_shape = draft.find("layers.0.self_attn.q_proj.weight")->shape;
  const auto& k_shape = draft.find("layers.0.self_attn.k_proj.weight")->shape;
  const auto q =
      interleave_rows(draft.data("layers.0.self_attn.q_proj.weight"), c.num_heads, c.head_dim, q_shape[1]);
  const auto k =
      interleave_rows(draft.data("layers.0.self_attn.k_proj.weight"), c.num_kv_heads, c.head_dim, k_shape[1]);
  tensors.add("blk.0.attn_q.weight", q_shape, q.data());
  tensors.add("blk.0.attn_k.weight", k_shape, k.data());
  tensors.add_weight("norm.weight", "output_norm.weight");
  tensors.add_weight("lm_head.weight", "output.weight");
  if (!draft.embed_tokens.empty())
    tensors.add("token_embd.weight", {c.vocab, c.hidden}, draft.embed_tokens.data());
  const std::vector<std::int64_t> d2t(draft.vocab.target_ids.begin(), draft.vocab.target_ids.end());
  if (!draft.vocab.is_full()) {
    tensors.list.push_back({"d2t", GGML_TYPE_I64, {draft.vocab.size()}, d2t.data()});
  }
  const RopeTable rope = rope_table(c.rope, c.head_dim, c.max_position_embeddings);
  const std::vector<float> divisors = rope_divisors(c, rope);
  if (c.rope.type != "default") {
    tensors.list.push_back(
        {"rope_freqs.weight", GGML_TYPE_F32, {static_cast<std::int64_t>(divisors.size())}, divisors.data()});
  }
  const GgufPtr gguf(gguf_init_empty());
  set_metadata(gguf.get(), c, target, rope.attention_scaling, file.number);
  copy_tokenizer(target.header.get(), gguf.get());
  gguf_set_val_str(gguf.get(), kDraftConfigKey, json_line(draft_config_to_json(c)).c_str());
  return write_gguf(gguf.get(), tensors.list, path);
}

}  // namespace

Status export_gguf(const DraftWeights& draft, const std::string& target_gguf, GgufType type,
                   const std::string& path, bool despite_ignored) {
  EAGLET_RETURN_IF_ERROR(check_servable(draft.config));
  if (!despite_ignored) EAGLET_RETURN_IF_ERROR(check_ignored(draft.config));
  EAGLET_ASSIGN_OR_RETURN(const GgufTarget target, read_gguf_target(target_gguf));
  if (Status status = check_target(draft, target); !status.ok()) return status.at(target_gguf);
  try {
    return write_draft_gguf(draft, target, type, path);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kNoSpace, "not enough memory to write the draft", path);
  }
}

}  // namespace eaglet
