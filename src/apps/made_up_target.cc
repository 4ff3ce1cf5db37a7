#include "apps/made_up_target.h"

#include <fmt/format.h>

#include <vector>

#include "base/files.h"
#include "base/interrupt.h"
#include "base/rng.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace eaglet::apps {
namespace {

constexpr std::int64_t kHidden = 2048, kVocab = 151936, kHeads = 32, kKvHeads = 4, kHeadDim = 128,
                       kExperts = 128, kPerToken = 8, kWidth = 768;

struct Shaped {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t elements() const { return shape[0] * (shape.size() > 1 ? shape[1] : 1); }
};

std::vector<Shaped> layer_tensors(std::int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  std::vector<Shaped> all = {{"input_layernorm.weight", {kHidden}},
                             {"post_attention_layernorm.weight", {kHidden}},
                             {"self_attn.q_proj.weight", {kHeads * kHeadDim, kHidden}},
                             {"self_attn.k_proj.weight", {kKvHeads * kHeadDim, kHidden}},
                             {"self_attn.v_proj.weight", {kKvHeads * kHeadDim, kHidden}},
                             {"self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim}},
                             {"self_attn.q_norm.weight", {kHeadDim}},
                             {"self_attn.k_norm.weight", {kHeadDim}},
                             {"mlp.gate.weight", {kExperts, kHidden}}};
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const std::string expert = fmt::format("mlp.experts.{}.", e);
    all.push_back({expert + "gate_proj.weight", {kWidth, kHidden}});
    all.push_back({expert + "up_proj.weight", {kWidth, kHidden}});
    all.push_back({expert + "down_proj.weight", {kHidden, kWidth}});
  }
  for (Shaped& tensor : all) tensor.name = prefix + tensor.name;
  return all;
}

// Values for any tensor: a run of the same random numbers, from another place each time.
class Values {
 public:
  Values() : pool_(2 * kVocab * kHidden / 8) {
    Rng rng(1);
    for (std::uint16_t& value : pool_)
      value = f32_to_bf16(static_cast<float>(0.04 * (static_cast<double>(rng.below(1 << 16)) / 65536 - 0.5)));
  }
  const void* some(std::int64_t elements) {
    if (elements > static_cast<std::int64_t>(pool_.size())) {  // the embeddings
      large_.resize(static_cast<std::size_t>(elements));
      for (std::size_t i = 0; i < large_.size(); ++i) large_[i] = pool_[i % pool_.size()];
      return large_.data();
    }
    const auto last = pool_.size() - static_cast<std::size_t>(elements);
    at_ = (at_ + 7919 * 64) % (last + 1);
    return pool_.data() + at_;
  }

 private:
  std::vector<std::uint16_t> pool_, large_;
  std::size_t at_ = 0;
};

Status write_file(const std::string& path, const std::vector<Shaped>& tensors, Values* values) {
  std::vector<TensorView> views;
  for (const Shaped& tensor : tensors) views.push_back({tensor.name, Dtype::kBF16, tensor.shape, nullptr});
  return write_safetensors(path, views, {}, [&](std::size_t i) -> Result<const void*> {
    return values->some(tensors[i].elements());
  });
}

Json config(std::int64_t layers) {
  return {
      {"model_type", "qwen3_moe"},   {"hidden_size", kHidden},           {"vocab_size", kVocab},
      {"num_hidden_layers", layers}, {"num_attention_heads", kHeads},    {"num_key_value_heads", kKvHeads},
      {"head_dim", kHeadDim},        {"intermediate_size", 6144},        {"moe_intermediate_size", kWidth},
      {"num_experts", kExperts},     {"num_experts_per_tok", kPerToken}, {"norm_topk_prob", true},
      {"rms_norm_eps", 1e-6},        {"rope_theta", 1000000.0},          {"max_position_embeddings", 40960},
      {"tie_word_embeddings", true}};
}

}  // namespace

std::uint64_t made_up_target_bytes(std::int64_t layers) {
  std::int64_t weights = 0;
  for (const Shaped& tensor : layer_tensors(0)) weights += tensor.elements();
  return static_cast<std::uint64_t>(2 * (weights * layers + kVocab * kHidden));
}

Status write_made_up_target(const std::string& directory, std::int64_t layers, Progress& progress) {
  EAGLET_RETURN_IF_ERROR(make_directories(directory));
  Values values;
  Json map = Json::object();
  progress.begin("write weights", static_cast<std::uint64_t>(layers), "layers");
  for (std::int64_t layer = -1; layer < layers; ++layer) {
    if (interrupted()) return Status(StatusCode::kInterrupted, "the benchmark was stopped");
    const std::vector<Shaped> tensors =
        layer < 0 ? std::vector<Shaped>{{"model.embed_tokens.weight", {kVocab, kHidden}}}
                  : layer_tensors(layer);
    const std::string file = fmt::format("model-{:05}.safetensors", layer + 1);
    for (const Shaped& tensor : tensors) map[tensor.name] = file;
    EAGLET_RETURN_IF_ERROR(write_file(directory + "/" + file, tensors, &values));
    if (layer >= 0) progress.update(static_cast<std::uint64_t>(layer) + 1);
  }
  EAGLET_RETURN_IF_ERROR(write_file_atomic(directory + "/model.safetensors.index.json",
                                           json_line({{"metadata", Json::object()}, {"weight_map", map}})));
  EAGLET_RETURN_IF_ERROR(write_file_atomic(directory + "/config.json", json_line(config(layers))));
  progress.end(fmt::format("{} layers", layers));
  return {};
}

}  // namespace eaglet::apps
