#include <fmt/format.h>

#include <algorithm>

#include "formats/gguf_file.h"
#include "formats/target_model.h"
#include "target/target_config.h"

namespace eaglet {
namespace {

Status not_native(const std::string& what, const std::string& path) {
  return Status(StatusCode::kConfig, what, path, "use --engine llama for this file");
}

constexpr std::int64_t kMost = 1 << 20;  // of any size below: what lies beyond is no model

bool are_sizes(std::initializer_list<std::int64_t> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n > 0 && n < kMost; });
}

// Latent attention (llama.cpp: deepseek2; DeepSeek-V2 and V3, Kimi-K2). Files of today say what a head is
// once it is decoded (..._mla) and keep the decoding matrix in two; older ones keep it whole.
Status read_latent(const GgufFile& file, TargetConfig* c) {
  const auto size = [&](const char* key) {
    return file.integer("deepseek2." + std::string(key)).value_or(0);
  };
  LatentConfig& l = c->latent;
  const bool decoded = file.has("deepseek2.attention.key_length_mla");
  l.q_rank = size("attention.q_lora_rank");
  l.kv_rank = size("attention.kv_lora_rank");
  l.rope_dim = size("rope.dimension_count");
  c->head_dim = size(decoded ? "attention.key_length_mla" : "attention.key_length");
  l.nope_dim = c->head_dim - l.rope_dim;
  l.value_dim = size(decoded ? "attention.value_length_mla" : "attention.value_length");
  c->num_kv_heads = c->num_heads;
  if (size("nextn_predict_layers") > 0) return not_native("a file with prediction layers", file.path());
  if (file.number("deepseek2.attention.temperature_scale").value_or(0) != 0)
    return not_native("attention with a temperature", file.path());
  if (are_sizes({l.kv_rank, l.rope_dim, l.nope_dim, l.value_dim}) && l.q_rank >= 0 && l.q_rank < kMost &&
      l.rope_dim % 2 == 0)
    return {};
  return not_native("sizes of latent attention that cannot be", file.path());
}

std::int64_t first_layer_with(const GgufFile& file, const TargetConfig& c, const char* tensor) {
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer)
    if (file.find(fmt::format("blk.{}.{}", layer, tensor)) != nullptr) return layer;
  return -1;
}

// llama.cpp takes a group's two best scores together whatever the model: right for DeepSeek-V3, not for V2.
Status read_latent_router(const GgufFile& file, TargetConfig* c) {
  constexpr std::int64_t kSoftmax = 1, kSigmoid = 2;  // llama.cpp's numbers; none is an old file
  ExpertConfig& e = c->experts;
  const std::int64_t scores = file.integer("deepseek2.expert_gating_func").value_or(kSoftmax);
  if (scores != kSoftmax && scores != kSigmoid)
    return not_native(fmt::format("a router of kind {}", scores), file.path());
  e.sigmoid = scores == kSigmoid;
  e.normalised = file.boolean("deepseek2.expert_weights_norm").value_or(false);
  e.correction = first_layer_with(file, *c, "exp_probs_b.bias") >= 0;
  e.shared = file.integer("deepseek2.expert_shared_count").value_or(0);
  e.groups = std::max<std::int64_t>(1, file.integer("deepseek2.expert_group_count").value_or(1));
  e.groups_kept = file.integer("deepseek2.expert_group_used_count").value_or(e.groups);
  if (e.groups > 1 && !e.correction)
    return not_native("groups of experts without a correction (DeepSeek-V2)", file.path());
  if (e.shared >= 0 && e.shared < kMost && e.groups < kMost && e.count % e.groups == 0 && e.groups_kept > 0 &&
      e.groups_kept <= e.groups && e.per_token <= e.count / e.groups * e.groups_kept)
    return {};
  return not_native("a router that cannot be", file.path());
}

// As llama.cpp computes qwen3moe: softmax over all experts, the chosen ones' weights made to add up to 1.
Status read_experts(const GgufFile& file, const std::string& arch, TargetConfig* c) {
  ExpertConfig& e = c->experts;
  e.count = file.integer(arch + ".expert_count").value_or(0);
  e.per_token = file.integer(arch + ".expert_used_count").value_or(0);
  e.width = file.integer(arch + ".expert_feed_forward_length").value_or(0);
  e.scale = file.number(arch + ".expert_weights_scale").value_or(1);
  if (e.scale == 0) e.scale = 1;  // what converters write for "none"
  e.normalised = true;
  for (std::int64_t layer = 0; layer < c->num_layers; ++layer)
    e.on_layer.push_back(file.find("blk." + std::to_string(layer) + ".ffn_gate_inp.weight") != nullptr);
  if (are_sizes({e.count, e.per_token, e.width}) && e.per_token <= e.count) return {};
  return not_native("numbers of experts that cannot be", file.path());
}

}  // namespace

Result<TargetConfig> target_config_from_gguf(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(path));
  const std::string& arch = facts.architecture;
  if (arch != "llama" && arch != "qwen2" && arch != "qwen3" && arch != "qwen3moe" && arch != "deepseek2")
    return not_native(
        "the native engine reads GGUF files of llama, qwen2, qwen3, qwen3moe and deepseek2, not of \"" +
            arch + "\"",
        path);
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  const bool latent = arch == "deepseek2";
  const bool experts =
      arch == "qwen3moe" || (latent && file.integer("deepseek2.expert_count").value_or(0) > 0);
  if (!experts && file.integer(arch + ".expert_count").value_or(0) > 0)
    return not_native("a " + arch + " file with experts", path);
  if (file.integer(arch + ".attention.sliding_window").value_or(0) > 0)
    return not_native("a GGUF file with a sliding window", path);
  if (!latent && file.integer(arch + ".rope.dimension_count").value_or(facts.head_dim) != facts.head_dim)
    return not_native("a rope over a part of the head", path);
  TargetConfig c;
  c.model_type = arch;
  c.hidden = facts.hidden;
  c.vocab = facts.vocab;
  c.num_layers = facts.num_layers;
  c.num_heads = facts.num_heads;
  c.num_kv_heads = facts.num_kv_heads;
  c.head_dim = facts.head_dim;
  c.intermediate = facts.intermediate;
  c.max_position_embeddings = facts.max_position_embeddings;
  c.rms_norm_eps = facts.rms_norm_eps;
  c.rope = facts.rope;
  c.tied_head = facts.tied_head;
  c.qk_norm = arch == "qwen3" || arch == "qwen3moe";
  c.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
  c.o_bias = file.find("blk.0.attn_output.bias") != nullptr;
  c.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  c.window.assign(static_cast<std::size_t>(c.num_layers), 0);
  if (latent) EAGLET_RETURN_IF_ERROR(read_latent(file, &c));
  if (experts) EAGLET_RETURN_IF_ERROR(read_experts(file, arch, &c));
  if (latent && experts) EAGLET_RETURN_IF_ERROR(read_latent_router(file, &c));
  return c;
}

}  // namespace eaglet
