#include "formats/gguf_file.h"
#include "formats/target_model.h"
#include "target/target_config.h"

namespace eaglet {
namespace {

Status not_native(const std::string& what, const std::string& path) {
  return Status(StatusCode::kConfig, what, path, "use --engine llama for this file");
}

}  // namespace

Result<TargetConfig> target_config_from_gguf(const std::string& path) {
  EAGLET_ASSIGN_OR_RETURN(const TargetFacts facts, read_target_facts(path));
  const std::string& arch = facts.architecture;
  if (arch != "llama" && arch != "qwen2" && arch != "qwen3")
    return not_native("the native engine reads GGUF files of llama, qwen2 and qwen3, not of \"" + arch + "\"",
                      path);
  EAGLET_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  if (file.integer(arch + ".expert_count").value_or(0) > 0)
    return not_native("a llama file with experts", path);
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
  c.qk_norm = arch == "qwen3";
  c.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
  c.o_bias = file.find("blk.0.attn_output.bias") != nullptr;
  c.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  c.window.assign(static_cast<std::size_t>(c.num_layers), 0);
  return c;
}

}  // namespace eaglet
