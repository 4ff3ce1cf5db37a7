#include "target/target_tensors.h"

#include <fmt/format.h>

#include <cmath>

namespace eaglet {
namespace {

// Reads into a list of members until the first failure.
class Reader {
 public:
  Reader(TargetTensors& tensors, std::string prefix) : tensors_(tensors), prefix_(std::move(prefix)) {}
  void operator()(const char* name, std::vector<std::int64_t> shape, std::vector<float>* to) {
    if (!status_.ok()) return;
    auto values = tensors_.read(prefix_ + name, shape);
    if (values.ok())
      *to = std::move(*values);
    else
      status_ = values.status();
  }
  const Status& status() const { return status_; }

 private:
  TargetTensors& tensors_;
  std::string prefix_;
  Status status_;
};

void read_grouped(const TargetConfig& c, Reader& read, LayerTensors* l) {
  const std::int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  read("self_attn.q_proj.weight", {q, c.hidden}, &l->q);
  read("self_attn.k_proj.weight", {kv, c.hidden}, &l->k);
  read("self_attn.v_proj.weight", {kv, c.hidden}, &l->v);
  read("self_attn.o_proj.weight", {c.hidden, q}, &l->o);
  if (c.qkv_bias) {
    read("self_attn.q_proj.bias", {q}, &l->q_bias);
    read("self_attn.k_proj.bias", {kv}, &l->k_bias);
    read("self_attn.v_proj.bias", {kv}, &l->v_bias);
  }
  if (c.o_bias) read("self_attn.o_proj.bias", {c.hidden}, &l->o_bias);
  if (!c.qk_norm) return;
  read("self_attn.q_norm.weight", {c.head_dim}, &l->q_norm);
  read("self_attn.k_norm.weight", {c.head_dim}, &l->k_norm);
}

void read_latent(const TargetConfig& c, Reader& read, LayerTensors* l) {
  const LatentConfig& m = c.latent;
  const std::int64_t q = c.num_heads * (m.nope_dim + m.rope_dim);
  if (m.q_rank > 0) {
    read("self_attn.q_a_proj.weight", {m.q_rank, c.hidden}, &l->q_a);
    read("self_attn.q_a_layernorm.weight", {m.q_rank}, &l->q_a_norm);
    read("self_attn.q_b_proj.weight", {q, m.q_rank}, &l->q_b);
  } else {
    read("self_attn.q_proj.weight", {q, c.hidden}, &l->q);
  }
  read("self_attn.kv_a_proj_with_mqa.weight", {m.kv_rank + m.rope_dim, c.hidden}, &l->kv_a);
  read("self_attn.kv_a_layernorm.weight", {m.kv_rank}, &l->kv_a_norm);
  read("self_attn.kv_b_proj.weight", {c.num_heads * (m.nope_dim + m.value_dim), m.kv_rank}, &l->kv_b);
  read("self_attn.o_proj.weight", {c.hidden, c.num_heads * m.value_dim}, &l->o);
}

void read_mlp(const TargetConfig& c, Reader& read, LayerTensors* l) {
  read("mlp.gate_proj.weight", {c.intermediate, c.hidden}, &l->gate);
  read("mlp.up_proj.weight", {c.intermediate, c.hidden}, &l->up);
  read("mlp.down_proj.weight", {c.hidden, c.intermediate}, &l->down);
  if (!c.mlp_bias) return;
  read("mlp.gate_proj.bias", {c.intermediate}, &l->mlp_biases.gate);
  read("mlp.up_proj.bias", {c.intermediate}, &l->mlp_biases.up);
  read("mlp.down_proj.bias", {c.hidden}, &l->mlp_biases.down);
}

void read_router(const TargetConfig& c, Reader& read, LayerTensors* l) {
  const ExpertConfig& e = c.experts;
  read("mlp.gate.weight", {e.count, c.hidden}, &l->router);
  if (e.correction) read("mlp.gate.e_score_correction_bias", {e.count}, &l->correction);
  if (e.shared == 0) return;
  const std::int64_t width = e.shared * e.width;
  read("mlp.shared_experts.gate_proj.weight", {width, c.hidden}, &l->shared_gate);
  read("mlp.shared_experts.up_proj.weight", {width, c.hidden}, &l->shared_up);
  read("mlp.shared_experts.down_proj.weight", {c.hidden, width}, &l->shared_down);
}

}  // namespace

std::string layer_prefix(std::int64_t layer) {
  return fmt::format("model.layers.{}.", layer);
}

Result<std::vector<float>> TargetTensors::read(const std::string& name,
                                               const std::vector<std::int64_t>& shape) {
  auto values = source_->read(name, shape);
  if (!values.ok()) return values;
  for (const float value : *values)
    if (!std::isfinite(value))
      return Status(StatusCode::kNumeric, "a weight of tensor " + name + " is not finite", path_,
                    "fetch the model again");
  return values;
}

Result<LayerTensors> read_layer(const TargetConfig& c, std::int64_t layer, TargetTensors& tensors) {
  LayerTensors l;
  Reader read(tensors, layer_prefix(layer));
  read("input_layernorm.weight", {c.hidden}, &l.input_norm);
  read("post_attention_layernorm.weight", {c.hidden}, &l.post_norm);
  if (c.latent.kv_rank > 0)
    read_latent(c, read, &l);
  else
    read_grouped(c, read, &l);
  if (has_experts(c, layer))
    read_router(c, read, &l);
  else
    read_mlp(c, read, &l);
  EAGLET_RETURN_IF_ERROR(read.status());
  return l;
}

Result<ExpertTensors> read_expert(const TargetConfig& c, std::int64_t layer, std::int64_t expert,
                                  TargetTensors& tensors) {
  ExpertTensors t;
  Reader read(tensors, fmt::format("{}mlp.experts.{}.", layer_prefix(layer), expert));
  read("gate_proj.weight", {c.experts.width, c.hidden}, &t.gate);
  read("up_proj.weight", {c.experts.width, c.hidden}, &t.up);
  read("down_proj.weight", {c.hidden, c.experts.width}, &t.down);
  EAGLET_RETURN_IF_ERROR(read.status());
  return t;
}

}  // namespace eaglet
