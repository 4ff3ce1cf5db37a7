#include "draft/draft_core.h"

#include <algorithm>
#include <numeric>

namespace eaglet::draft_core {

AllWeights point_into(const DraftConfig& config, const std::vector<ParameterInfo>& table, float* block,
                      std::int64_t elements) {
  const auto at = [&](const std::string& name) -> float* {
    for (const ParameterInfo& info : table)
      if (info.name == name) return info.offset + info.elements <= elements ? block + info.offset : nullptr;
    return nullptr;
  };
  AllWeights w;
  w.embed = at("embed_tokens.weight");
  w.fc = at("fc.weight");
  w.input_norm = at("input_norm.weight");
  w.embed_norm = at("layers.0.input_layernorm.weight");
  w.norm = at("norm.weight");
  w.lm_head = at("lm_head.weight");
  if (config.fc_norm)
    for (std::int64_t i = 0; i < config.num_aux(); ++i)
      w.fc_norm.push_back(at("fc_norm." + std::to_string(i) + ".weight"));
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    LayerWeights l;
    l.state_norm = at(layer + (i == 0 ? "hidden_norm.weight" : "input_layernorm.weight"));
    l.post_norm = at(layer + "post_attention_layernorm.weight");
    l.q = at(layer + "self_attn.q_proj.weight");
    l.k = at(layer + "self_attn.k_proj.weight");
    l.v = at(layer + "self_attn.v_proj.weight");
    l.q_norm = at(layer + "self_attn.q_norm.weight");
    l.k_norm = at(layer + "self_attn.k_norm.weight");
    l.o = at(layer + "self_attn.o_proj.weight");
    l.gate = at(layer + "mlp.gate_proj.weight");
    l.up = at(layer + "mlp.up_proj.weight");
    l.down = at(layer + "mlp.down_proj.weight");
    l.q_bias = at(layer + "self_attn.q_proj.bias");
    l.k_bias = at(layer + "self_attn.k_proj.bias");
    l.v_bias = at(layer + "self_attn.v_proj.bias");
    l.o_bias = at(layer + "self_attn.o_proj.bias");
    l.gate_bias = at(layer + "mlp.gate_proj.bias");
    l.up_bias = at(layer + "mlp.up_proj.bias");
    l.down_bias = at(layer + "mlp.down_proj.bias");
    w.layers.push_back(l);
  }
  return w;
}

HeadLossShape Core::head_shape() const {
  HeadLossShape shape;
  shape.hidden = dims.H;
  shape.target_hidden = dims.Ht;
  shape.draft_vocab = dims.Vd;
  shape.steps = dims.K;
  shape.whole_vocab = options.teacher_vocab == TeacherVocab::kWhole ? dims.V : 0;
  return shape;
}

AttentionShape Core::attention_shape(std::int64_t layer) const {
  const auto l = static_cast<std::size_t>(layer);
  return {dims.N, dims.Kv, dims.D, l < config.sliding_window.size() ? config.sliding_window[l] : 0,
          exact ? ComputeType::kF32 : options.compute_type};
}

LayerRows Core::layer_rows(int k, std::int64_t layer) const {
  const auto step_index = static_cast<std::size_t>(k);
  const ChunkPlan::Step& step = chunk.steps[step_index];
  const ChunkIndex::Step& at = index.steps[step_index];
  LayerRows rows;
  if (k == 0) {
    rows.n_in = num_keys();
    rows.in_cos = buffers.key_cos;
    rows.in_sin = buffers.key_sin;
  } else {
    rows.n_in = num_live(k);
    rows.in_source = at.source_key;
    rows.in_cos = buffers.cos[step_index];
    rows.in_sin = buffers.sin[step_index];
  }
  if (k == 0 && layer + 1 < dims.L) {  // below the last layer every key row is computed in full at step 0
    rows.n_q = rows.n_in;
    rows.spans = &chunk.key_spans;
    rows.key_of_query = index.identity;
    rows.q_cos = buffers.key_cos;
    rows.q_sin = buffers.key_sin;
    return rows;
  }
  rows.n_q = num_live(k);
  if (k == 0) rows.q_in = at.key_of_live;
  rows.q_source = at.source_key;
  rows.spans = &step.spans;
  rows.key_of_query = at.key_of_live;
  rows.q_cos = buffers.cos[step_index];
  rows.q_sin = buffers.sin[step_index];
  return rows;
}

AttentionInputs attention_inputs(int k, std::int64_t layer, const LayerRows& rows, Core* core) {
  const auto l = static_cast<std::size_t>(layer);
  AttentionPointers& pointers = core->attention_pointers;
  pointers.own_keys.clear();
  pointers.own_values.clear();
  pointers.own_index.clear();
  pointers.d_own_keys.clear();
  pointers.d_own_values.clear();
  for (int j = 1; j <= k; ++j) {
    const LayerStep& own = core->buffers.at[static_cast<std::size_t>(j)][l];
    pointers.own_keys.push_back(own.k);
    pointers.own_values.push_back(own.v);
    pointers.own_index.push_back(
        core->index.own_index[static_cast<std::size_t>(k)][static_cast<std::size_t>(j)]);
    pointers.d_own_keys.push_back(own.d_k);
    pointers.d_own_values.push_back(own.d_v);
  }
  const LayerStep& zero = core->buffers.at[0][l];
  AttentionInputs in;
  in.num_queries = rows.n_q;
  in.spans = rows.spans;
  in.key_of_query = rows.key_of_query;
  in.queries = core->buffers.at[static_cast<std::size_t>(k)][l].q;
  in.keys0 = zero.k;
  in.values0 = zero.v;
  in.num_own = k;
  in.own_keys = pointers.own_keys.data();
  in.own_values = pointers.own_values.data();
  in.own_index = pointers.own_index.data();
  return in;
}

}  // namespace eaglet::draft_core
