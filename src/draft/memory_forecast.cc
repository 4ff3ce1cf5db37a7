#include "draft/memory_forecast.h"

#include <algorithm>

#include "draft/draft_core.h"

namespace eaglet {

struct MemoryForecast::Parts {
  draft_core::Core core;
  std::int64_t chunk_rows = 0;
  bool with_gradients = false;
  int threads = 1;
};

MemoryForecast::MemoryForecast(const DraftConfig& c, const TttOptions& options, bool with_gradients,
                               int threads, bool on_device)
    : parts_(std::make_unique<Parts>()) {
  draft_core::Core& core = parts_->core;
  core.config = c;
  core.options = options;
  core.counts_for_device = on_device;
  core.dims = {c.hidden,       c.target_hidden, c.num_aux(),   c.num_heads,  c.num_kv_heads,   c.head_dim,
               c.intermediate, c.vocab,         c.draft_vocab, c.num_layers, options.ttt_steps};
  parts_->chunk_rows = options.chunk_rows > 0 ? options.chunk_rows : default_chunk_rows(options.ttt_steps);
  parts_->with_gradients = with_gradients;
  parts_->threads = threads;
  draft_core::Buffers& b = core.buffers;  // without memory they only count
  const auto steps = static_cast<std::size_t>(core.dims.K), layers = static_cast<std::size_t>(core.dims.L);
  b.keys.resize(layers);
  b.at.assign(steps, std::vector<draft_core::LayerStep>(layers));
  for (auto* list : {&b.cos, &b.sin, &b.f_normed, &b.f_inv, &b.xs}) list->resize(steps);
}

MemoryForecast::~MemoryForecast() = default;

std::uint64_t MemoryForecast::activation_bytes(const DraftInputs& rows) {
  draft_core::Core& core = parts_->core;
  const int steps = core.options.ttt_steps;
  plan_rows(rows.rows, steps, rows.document_ids, rows.loss_mask,
            {parts_->with_gradients ? core.options.row_sampling : 1.0, 0}, &core.row_plan);
  std::int64_t most = 0;
  for (std::int64_t first = 0; first < core.row_plan.keys; first += parts_->chunk_rows) {
    plan_chunk(core.row_plan, steps, rows.position_ids, rows.loss_mask, first,
               std::min(parts_->chunk_rows, core.row_plan.keys - first), &core.chunk);
    draft_core::chunk_sizes(core, &core.sizes);
    most = std::max(
        most, draft_core::lay_out(core, core.sizes, parts_->with_gradients, parts_->threads, &core.buffers));
  }
  std::uint64_t bytes = sizeof(float) * static_cast<std::uint64_t>(most);
  if (core.on_device())
    bytes +=
        draft_core::feed_sizes(core, draft_core::largest_chunk(core, rows.rows, parts_->chunk_rows)).bytes();
  return bytes;
}

std::uint64_t MemoryForecast::packed_bytes(bool train_head) const {
  const TttOptions& options = parts_->core.options;
  return draft_core::forecast_product_bytes(options.compute_type, parts_->with_gradients, !train_head,
                                            options.teacher_vocab, parts_->core.dims,
                                            parts_->core.on_device());
}

}  // namespace eaglet
