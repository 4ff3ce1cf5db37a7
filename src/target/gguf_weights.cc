#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "formats/gguf_file.h"
#include "target/target_tensors.h"

namespace eaglet {
namespace {

// The part of a layer's tensor name after "model.layers.<i>." and what llama.cpp calls it after "blk.<i>.".
const std::map<std::string, std::string>& layer_names() {
  static const std::map<std::string, std::string> names = {
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"mlp.gate", "ffn_gate_inp"},
      {"self_attn.q_a_proj", "attn_q_a"},
      {"self_attn.q_a_layernorm", "attn_q_a_norm"},
      {"self_attn.q_b_proj", "attn_q_b"},
      {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
      {"self_attn.kv_b_proj", "attn_kv_b"},
      {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
      {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
      {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
      {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};
  return names;
}

// "" when llama.cpp has no such tensor.
std::string gguf_name(const std::string& name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kLayers = "model.layers.";
  const std::size_t dot = name.find('.', kLayers.size()), last = name.rfind('.');
  if (!name.starts_with(kLayers) || dot == name.npos || last <= dot) return {};
  if (name.ends_with(".mlp.gate.e_score_correction_bias"))
    return fmt::format("blk.{}.exp_probs_b.bias", name.substr(kLayers.size(), dot - kLayers.size()));
  const auto found = layer_names().find(name.substr(dot + 1, last - dot - 1));
  if (found == layer_names().end()) return {};
  return fmt::format("blk.{}.{}{}", name.substr(kLayers.size(), dot - kLayers.size()), found->second,
                     name.substr(last));
}

// An expert's matrix: llama.cpp keeps those of all experts of a layer in one tensor.
struct ExpertPart {
  std::string tensor;
  std::int64_t expert = 0;
};
std::optional<ExpertPart> expert_part(const std::string& name) {
  int layer = 0, expert = 0, end = 0;
  char part[8] = {};
  if (std::sscanf(name.c_str(), "model.layers.%d.mlp.experts.%d.%7[a-z]_proj.weight%n", &layer, &expert, part,
                  &end) != 3 ||
      end != static_cast<int>(name.size()))
    return std::nullopt;
  return ExpertPart{fmt::format("blk.{}.ffn_{}_exps.weight", layer, part), expert};
}

class GgufWeights : public WeightSource {
 public:
  GgufWeights(GgufFile file, const TargetConfig& config)
      : file_(std::move(file)), config_(config), pairs_side_by_side_(config.model_type == "llama") {}

  Result<std::vector<float>> read(const std::string& name, const std::vector<std::int64_t>& shape) override {
    if (const auto part = expert_part(name)) {
      EAGLET_RETURN_IF_ERROR(check_shape(part->tensor, {config_.experts.count, shape[0], shape[1]}));
      return file_.read_f32_part(part->tensor, part->expert);
    }
    const std::string stored = gguf_name(name);
    if (stored.ends_with(".attn_kv_b.weight") && file_.find(stored) == nullptr)
      return join_key_and_value(stored.substr(0, stored.rfind("attn_kv_b")));
    EAGLET_RETURN_IF_ERROR(check_shape(stored, shape));
    EAGLET_ASSIGN_OR_RETURN(std::vector<float> values, file_.read_f32(stored.empty() ? name : stored));
    if (!pairs_side_by_side_) return values;
    if (name.find(".q_proj.") != name.npos) return pairs_apart(values, config_.num_heads);
    if (name.find(".k_proj.") != name.npos) return pairs_apart(values, config_.num_kv_heads);
    return values;
  }

 private:
  Status check_shape(const std::string& stored, const std::vector<std::int64_t>& shape) const {
    const GgufTensor* tensor = file_.find(stored);
    if (tensor == nullptr || tensor->shape == shape) return {};  // absence is said by the reader
    return Status(StatusCode::kConfig,
                  fmt::format("tensor {} is [{}], the header says [{}]", stored,
                              fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")),
                  file_.path(), "convert the model again");
  }

  // What decodes the narrow row into keys and values lies in two: attn_k_b turned, [head][narrow][key], and
  // attn_v_b [head][value][narrow]. Ours is one, [head][key, then value][narrow].
  Result<std::vector<float>> join_key_and_value(const std::string& layer) const {
    const LatentConfig& l = config_.latent;
    const std::int64_t heads = config_.num_heads, rows = l.nope_dim + l.value_dim;
    EAGLET_RETURN_IF_ERROR(check_shape(layer + "attn_k_b.weight", {heads, l.kv_rank, l.nope_dim}));
    EAGLET_RETURN_IF_ERROR(check_shape(layer + "attn_v_b.weight", {heads, l.value_dim, l.kv_rank}));
    EAGLET_ASSIGN_OR_RETURN(const std::vector<float> keys, file_.read_f32(layer + "attn_k_b.weight"));
    EAGLET_ASSIGN_OR_RETURN(const std::vector<float> values, file_.read_f32(layer + "attn_v_b.weight"));
    std::vector<float> joined(static_cast<std::size_t>(heads * rows * l.kv_rank));
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* from = keys.data() + h * l.kv_rank * l.nope_dim;
      float* to = joined.data() + h * rows * l.kv_rank;
      for (std::int64_t narrow = 0; narrow < l.kv_rank; ++narrow)
        for (std::int64_t i = 0; i < l.nope_dim; ++i)
          to[i * l.kv_rank + narrow] = from[narrow * l.nope_dim + i];
      std::copy_n(values.data() + h * l.value_dim * l.kv_rank, l.value_dim * l.kv_rank,
                  to + l.nope_dim * l.kv_rank);
    }
    return joined;
  }

  // llama.cpp's converter puts the two rows that turn together side by side (llama's rope); ours are half a
  // head apart, as in transformers.
  std::vector<float> pairs_apart(const std::vector<float>& rows, std::int64_t heads) const {
    const std::int64_t half = config_.head_dim / 2,
                       width = static_cast<std::int64_t>(rows.size()) / (heads * config_.head_dim);
    std::vector<float> apart(rows.size());
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < half; ++i)
        for (std::int64_t part = 0; part < 2; ++part)
          std::copy_n(rows.data() + ((h * half + i) * 2 + part) * width, width,
                      apart.data() + ((h * 2 + part) * half + i) * width);
    return apart;
  }

  GgufFile file_;
  TargetConfig config_;
  bool pairs_side_by_side_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> open_gguf_weights(const std::string& path, const TargetConfig& config) {
  EAGLET_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  return std::unique_ptr<WeightSource>(std::make_unique<GgufWeights>(std::move(file), config));
}

}  // namespace eaglet
