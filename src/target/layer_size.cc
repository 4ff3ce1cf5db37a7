#include "target/layer_size.h"

#include <algorithm>

namespace eaglet {

LayerSize layer_size(const TargetConfig& c) {
  LayerSize size;
  const LatentConfig& m = c.latent;
  const std::int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  size.attention = 2 * (q + kv) * c.hidden;
  size.row = 2 * c.hidden + 2 * (q + kv) + 2 * c.intermediate;
  if (m.kv_rank > 0) {
    const std::int64_t decoded = c.num_heads * (m.nope_dim + m.value_dim);
    size.attention = (m.q_rank > 0 ? m.q_rank * (c.hidden + q) : q * c.hidden) +
                     (m.kv_rank + m.rope_dim) * c.hidden + m.kv_rank * decoded +
                     c.num_heads * m.value_dim * c.hidden;
    size.row += 3 * c.num_heads * std::max(c.head_dim, m.value_dim) + decoded;
  }
  size.mlp = has_dense_layer(c) ? 3 * c.hidden * c.intermediate : 0;
  size.expert = 3 * c.hidden * c.experts.width;
  size.shared = c.experts.shared * size.expert + c.experts.count * c.hidden;
  return size;
}

}  // namespace eaglet
