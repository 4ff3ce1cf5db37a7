#include "target/layer_products.h"

#include "device/threads.h"

namespace eaglet {
namespace {

constexpr std::int64_t kTileRows = 64;  // as fast as 256, and little is filled up behind a document

// Packed now; the fp32 values are needed no longer.
void take(const std::unique_ptr<LinearWeight>& product, std::vector<float>* values) {
  if (product == nullptr || values->empty()) return;
  product->load(values->data());
  std::vector<float>().swap(*values);
}

// Several weights of one input, the rows of one below those of the other.
void take_joined(const std::unique_ptr<LinearWeight>& product,
                 const std::vector<std::vector<float>*>& parts) {
  if (product == nullptr || parts[0]->empty()) return;
  std::vector<float> all;
  for (std::vector<float>* part : parts) {
    all.insert(all.end(), part->begin(), part->end());
    std::vector<float>().swap(*part);
  }
  product->load(all.data());
}

void take_mlp(const MlpProducts& products, std::vector<float>* gate, std::vector<float>* up,
              std::vector<float>* down) {
  take_joined(products.gate_up, {gate, up});
  take(products.gate, gate);
  take(products.up, up);
  take(products.down, down);
}

}  // namespace

MlpProducts LayerProducts::make_mlp(std::int64_t width) {
  if (joined()) return {nullptr, nullptr, make(hidden_, width), make(2 * width, hidden_), width};
  return {make(width, hidden_), make(width, hidden_), make(hidden_, width), nullptr, width};
}

LayerProducts::LayerProducts(const TargetConfig& c, const ForwardOptions& options)
    : hidden_(c.hidden), workspace_(std::make_shared<ProductWorkspace>(num_threads())) {
  options_.type = options.compute_type;
  options_.pack_f32 = true;
  options_.with_backward = false;
  options_.tile_rows = options.deterministic ? kTileRows : 0;
  make_attention(c);
  if (has_dense_layer(c)) mlp = make_mlp(c.intermediate);
  if (c.experts.count > 0) make_experts(c, 1);
}

LayerProducts::LayerProducts(const TargetConfig& c, std::int64_t layer, ComputeType type,
                             const std::shared_ptr<ProductWorkspace>& workspace)
    : hidden_(c.hidden), workspace_(workspace) {
  options_.type = type;
  options_.pack_f32 = true;
  options_.with_backward = false;
  options_.row_step = kFewRows;
  make_attention(c);
  if (has_experts(c, layer))
    make_experts(c, c.experts.count);
  else
    mlp = make_mlp(c.intermediate);
}

void LayerProducts::make_attention(const TargetConfig& c) {
  const LatentConfig& m = c.latent;
  const std::int64_t q_width = c.num_heads * c.head_dim, kv_width = c.num_kv_heads * c.head_dim;
  if (m.kv_rank == 0 && joined()) {
    qkv = make(q_width + 2 * kv_width, c.hidden);
    o = make(c.hidden, q_width);
    return;
  }
  if (m.kv_rank == 0 || m.q_rank == 0) q = make(q_width, c.hidden);
  if (m.kv_rank == 0) {
    k = make(kv_width, c.hidden);
    v = make(kv_width, c.hidden);
    o = make(c.hidden, q_width);
    return;
  }
  if (m.q_rank > 0) {
    q_a = make(m.q_rank, c.hidden);
    q_b = make(q_width, m.q_rank);
  }
  kv_a = make(m.kv_rank + m.rope_dim, c.hidden);
  kv_b = make(c.num_heads * (m.nope_dim + m.value_dim), m.kv_rank);
  o = make(c.hidden, c.num_heads * m.value_dim);
}

void LayerProducts::make_experts(const TargetConfig& c, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) experts.push_back(make_mlp(c.experts.width));
  LinearWeightOptions exact = options_;
  exact.type = ComputeType::kF32;
  exact.tile_rows = kTileRows;
  router = std::make_unique<LinearWeight>(c.experts.count, c.hidden, c.hidden, exact, workspace_.get());
  if (c.experts.shared > 0) shared = make_mlp(c.experts.shared * c.experts.width);
}

void LayerProducts::load(LayerTensors* l) {
  take_joined(qkv, {&l->q, &l->k, &l->v});
  take(q, &l->q);
  take(k, &l->k);
  take(v, &l->v);
  take(o, &l->o);
  take(q_a, &l->q_a);
  take(q_b, &l->q_b);
  take(kv_a, &l->kv_a);
  take(kv_b, &l->kv_b);
  take_mlp(mlp, &l->gate, &l->up, &l->down);
  take(router, &l->router);
  take_mlp(shared, &l->shared_gate, &l->shared_up, &l->shared_down);
}

void LayerProducts::load_expert(ExpertTensors* e, MlpProducts* products) {
  take_mlp(*products, &e->gate, &e->up, &e->down);
}

}  // namespace eaglet
