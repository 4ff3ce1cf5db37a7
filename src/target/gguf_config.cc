#include "formats/gguf_file.h"
#include "formats/target_model.h"
#include "target/target_config.h"

namespace eaglet {
namespace {

Status not_native(const std::string& what, const std::string& path) {
  return Status(StatusCode::kConfig, what, path, "use --engine llama for this file");
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
  constexpr std::int64_t kMost = 1 << 20;
  if (e.count > 0 && e.count < kMost && e.per_token > 0 && e.per_token <= e.count && e.width > 0 &&
      e.width < kMost)
    return {};
  return not_native("numbers of experts that cannot be", file.path());
}

}  // namespace

Result<TargetConfig> target_config_from_gguf(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(path));
  const std::string& arch = facts.architecture;
  if (arch != "llama" && arch != "qwen2" && arch != "qwen3" && arch != "qwen3moe")
    return not_native(
        "the native engine reads GGUF files of llama, qwen2, qwen3 and qwen3moe, not of \"" + arch + "\"",
        path);
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  const bool experts = arch == "qwen3moe";
  if (!experts && file.integer(arch + ".expert_count").value_or(0) > 0)
    return not_native("a " + arch + " file with experts", path);
  if (file.integer(arch + ".attention.sliding_window").value_or(0) > 0)
    return not_native("a GGUF file with a sliding window", path);
  if (file.integer(arch + ".rope.dimension_count").value_or(facts.head_dim) != facts.head_dim)
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
  c.qk_norm = arch == "qwen3" || experts;
  c.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
  c.o_bias = file.find("blk.0.attn_output.bias") != nullptr;
  c.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  c.window.assign(static_cast<std::size_t>(c.num_layers), 0);
  if (experts) {
    EAGLET_RETURN_IF_ERROR(read_experts(file, arch, &c));
  }
  return c;
}

}  // namespace eaglet
