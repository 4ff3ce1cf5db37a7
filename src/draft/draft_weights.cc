#include "draft/draft_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/hash.h"
#include "base/rng.h"

namespace eaglet {
namespace {

constexpr double kInitialDeviation = 0.02;

class TableBuilder {
 public:
  void add(std::string name, std::vector<std::int64_t> shape, bool trainable = true) {
    ParameterInfo info{std::move(name), std::move(shape), next_, 1, trainable};
    for (const std::int64_t dimension : info.shape) info.elements *= dimension;
    next_ += info.elements;
    table_.push_back(std::move(info));
  }
  std::vector<ParameterInfo> take() { return std::move(table_); }

 private:
  std::vector<ParameterInfo> table_;
  std::int64_t next_ = 0;
};

void add_layer(TableBuilder& table, const DraftConfig& c, std::int64_t layer) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  const std::int64_t input =
      layer == 0 ? 2 * c.hidden : c.hidden;  // layer 0 reads embedding and state side by side
  table.add(prefix + "input_layernorm.weight", {c.hidden});
  if (layer == 0) table.add(prefix + "hidden_norm.weight", {c.hidden});
  table.add(prefix + "post_attention_layernorm.weight", {c.hidden});
  table.add(prefix + "self_attn.q_proj.weight", {c.num_heads * c.head_dim, input});
  table.add(prefix + "self_attn.k_proj.weight", {c.num_kv_heads * c.head_dim, input});
  table.add(prefix + "self_attn.v_proj.weight", {c.num_kv_heads * c.head_dim, input});
  if (c.qk_norm) {
    table.add(prefix + "self_attn.q_norm.weight", {c.head_dim});
    table.add(prefix + "self_attn.k_norm.weight", {c.head_dim});
  }
  table.add(prefix + "self_attn.o_proj.weight", {c.hidden, c.num_heads * c.head_dim});
  table.add(prefix + "mlp.gate_proj.weight", {c.intermediate, c.hidden});
  table.add(prefix + "mlp.up_proj.weight", {c.intermediate, c.hidden});
  table.add(prefix + "mlp.down_proj.weight", {c.hidden, c.intermediate});
  if (c.attention_bias) {
    table.add(prefix + "self_attn.q_proj.bias", {c.num_heads * c.head_dim});
    table.add(prefix + "self_attn.k_proj.bias", {c.num_kv_heads * c.head_dim});
    table.add(prefix + "self_attn.v_proj.bias", {c.num_kv_heads * c.head_dim});
  }
  if (c.attention_bias) table.add(prefix + "self_attn.o_proj.bias", {c.hidden});
  if (c.mlp_bias) {
    table.add(prefix + "mlp.gate_proj.bias", {c.intermediate});
    table.add(prefix + "mlp.up_proj.bias", {c.intermediate});
    table.add(prefix + "mlp.down_proj.bias", {c.hidden});
  }
}

// One stream per tensor, so a tensor's values do not depend on which others the draft has.
void fill_normal(const ParameterInfo& info, std::uint64_t seed, float* values) {
  Rng rng(seed, xxh64(info.name));
  for (std::int64_t i = 0; i < info.elements; ++i)
    values[i] = static_cast<float>(kInitialDeviation * rng.normal());
}

void gather_head(const DraftWeights& draft, const std::vector<float>& target_head, float* values) {
  const std::int64_t width = draft.config.hidden;
  for (std::int64_t row = 0; row < draft.vocab.size(); ++row) {
    const float* from = target_head.data() + draft.vocab.target_ids[row] * width;
    std::copy(from, from + width, values + row * width);
  }
}

}  // namespace

std::vector<ParameterInfo> parameter_table(const DraftConfig& c, bool train_head, bool train_embeddings) {
  TableBuilder table;
  if (train_embeddings) table.add("embed_tokens.weight", {c.vocab, c.hidden});
  table.add("fc.weight", {c.hidden, c.num_aux() * c.target_hidden});
  if (c.norm_before_fc) table.add("input_norm.weight", {c.num_aux() * c.target_hidden});
  if (c.fc_norm) {
    for (std::int64_t i = 0; i < c.num_aux(); ++i)
      table.add(fmt::format("fc_norm.{}.weight", i), {c.target_hidden});
  }
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) add_layer(table, c, layer);
  table.add("norm.weight", {c.hidden});
  table.add("lm_head.weight", {c.draft_vocab, c.hidden}, train_head);
  return table.take();
}

const ParameterInfo* DraftWeights::find(const std::string& name) const {
  for (const ParameterInfo& info : table) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

float* DraftWeights::data(const std::string& name) {
  const ParameterInfo* info = find(name);
  return info == nullptr ? nullptr : values.data() + info->offset;
}

const float* DraftWeights::data(const std::string& name) const {
  const ParameterInfo* info = find(name);
  return info == nullptr ? nullptr : values.data() + info->offset;
}

const float* DraftWeights::own_embeddings() const {
  if (const float* trained = data("embed_tokens.weight"); trained != nullptr) return trained;
  return embed_tokens.empty() ? nullptr : embed_tokens.data();
}

DraftWeights new_draft(const DraftConfig& config, const DraftVocab& vocab, bool train_head,
                       const std::vector<float>& target_head, const std::vector<float>& target_final_norm,
                       std::uint64_t seed, const std::vector<float>* target_embeddings) {
  DraftWeights draft{
      config, vocab, parameter_table(config, train_head, target_embeddings != nullptr), {}, {}};
  draft.values.resize(static_cast<std::size_t>(draft.table.back().offset + draft.table.back().elements));
  const bool same_width = config.hidden == config.target_hidden;
  for (const ParameterInfo& info : draft.table) {
    float* values = draft.values.data() + info.offset;
    if (info.name == "lm_head.weight" && same_width) {
      gather_head(draft, target_head, values);
    } else if (info.name == "norm.weight" && same_width) {
      std::copy(target_final_norm.begin(), target_final_norm.end(), values);
    } else if (info.name == "embed_tokens.weight" && same_width) {
      std::copy(target_embeddings->begin(), target_embeddings->end(), values);
    } else if (info.shape.size() == 1) {
      std::fill(values, values + info.elements, info.name.ends_with(".bias") ? 0.0f : 1.0f);
    } else {
      fill_normal(info, seed, values);
    }
  }
  return draft;
}

Status train_embeddings(const std::vector<float>& target_embeddings, DraftWeights* draft) {
  if (draft->find("embed_tokens.weight") != nullptr) return {};
  const std::vector<float>& start = draft->embed_tokens.empty() ? target_embeddings : draft->embed_tokens;
  const DraftConfig& c = draft->config;
  if (static_cast<std::int64_t>(start.size()) != c.vocab * c.hidden)
    return Status(StatusCode::kConfig,
                  fmt::format("embeddings of {} numbers cannot start a draft that needs {} x {}",
                              start.size(), c.vocab, c.hidden),
                  "", "give a draft with embeddings of its own, or make it as wide as the target");
  const bool train_head = draft->find("lm_head.weight")->trainable;
  std::vector<float> values = start;
  values.insert(values.end(), draft->values.begin(),
                draft->values.end());  // the other tensors keep their order
  draft->table = parameter_table(c, train_head, true);
  draft->values = std::move(values);
  draft->embed_tokens = {};
  return {};
}

}  // namespace eaglet
