#include "target/resident_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.h"
#include "device/threads.h"
#include "ops/rms_norm.h"
#include "target/expert_layer.h"
#include "target/layer_size.h"
#include "target/target_forward.h"

namespace eaglet {
namespace {

std::int64_t filled_up(std::int64_t rows) {
  return (rows + LayerProducts::kFewRows - 1) / LayerProducts::kFewRows * LayerProducts::kFewRows;
}

LinearWeightOptions head_options(ComputeType type) {
  LinearWeightOptions options;
  options.type = type;
  options.pack_f32 = true;
  options.with_backward = false;
  options.row_step = LayerProducts::kFewRows;
  return options;
}

}  // namespace

ResidentTarget::ResidentTarget(TargetConfig config, ComputeType type)
    : config_(std::move(config)),
      type_(type),
      rope_(target_rope(config_)),
      workspace_(std::make_shared<ProductWorkspace>(num_threads())),
      scratch_(static_cast<std::size_t>(num_threads())) {}

Result<std::unique_ptr<ResidentTarget>> ResidentTarget::load(const std::string& path, ComputeType type,
                                                             const OnLayer& on_layer) {
  EAGLET_ASSIGN_OR_RETURN(TargetFiles files, open_target_files(path));
  std::unique_ptr<ResidentTarget> target(new ResidentTarget(std::move(files.config), type));
  const TargetConfig& c = target->config_;
  for (std::int64_t i = 0; i < c.num_layers; ++i) {
    Layer layer;
    EAGLET_ASSIGN_OR_RETURN(layer.tensors, read_layer(c, i, files.tensors));
    layer.products = std::make_unique<LayerProducts>(c, i, type, target->workspace_);
    layer.products->load(&layer.tensors);
    for (std::int64_t e = 0; has_experts(c, i) && e < c.experts.count; ++e) {
      EAGLET_ASSIGN_OR_RETURN(ExpertTensors expert, read_expert(c, i, e, files.tensors));
      LayerProducts::load_expert(&expert, &layer.products->experts[static_cast<std::size_t>(e)]);
      if (interrupted()) return Status(StatusCode::kInterrupted, "stopped by a signal");
    }
    target->layers_.push_back(std::move(layer));
    EAGLET_RETURN_IF_ERROR(on_layer(i + 1, c.num_layers));
  }
  const std::vector<std::int64_t> table = {c.vocab, c.hidden};
  EAGLET_ASSIGN_OR_RETURN(target->final_norm_, files.tensors.read("model.norm.weight", {c.hidden}));
  EAGLET_ASSIGN_OR_RETURN(target->embeddings_, files.tensors.read("model.embed_tokens.weight", table));
  target->head_ = std::make_unique<LinearWeight>(c.vocab, c.hidden, c.hidden, head_options(type),
                                                 target->workspace_.get());
  if (c.tied_head) {
    target->head_->load(target->embeddings_.data());
  } else {
    EAGLET_ASSIGN_OR_RETURN(const std::vector<float> head, files.tensors.read("lm_head.weight", table));
    target->head_->load(head.data());
  }
  return target;
}

std::uint64_t ResidentTarget::weight_bytes(const TargetConfig& c, ComputeType type) {
  const LayerSize size = layer_size(c);
  const std::int64_t packed = type == ComputeType::kBf16 ? 2 : 4;
  std::int64_t weights = c.vocab * c.hidden;
  for (std::int64_t i = 0; i < c.num_layers; ++i)
    weights += size.attention + (has_experts(c, i) ? size.shared + c.experts.count * size.expert : size.mlp);
  // The embeddings stay fp32; so is what is read last, before it is packed.
  return static_cast<std::uint64_t>(packed * weights + 4 * 2 * c.vocab * c.hidden);
}

std::uint64_t ResidentTarget::step_bytes(const TargetConfig& c, std::int64_t rows, std::int64_t outputs) {
  return static_cast<std::uint64_t>(
      4 * (filled_up(rows) * (layer_size(c).row + 3 * c.hidden) + filled_up(outputs) * (c.vocab + c.hidden)));
}

Status ResidentTarget::embed(const std::vector<NextTokens>& sequences) {
  chunk_ = {};
  caches_ = {};
  rows_ = 0;
  for (const NextTokens& next : sequences) {
    const auto n = static_cast<std::int64_t>(next.ids.size());
    const std::int64_t past = next.cache->length();
    if (n == 0 || past + n > next.cache->room())
      return Status(StatusCode::kInternal,
                    fmt::format("{} tokens after {} do not fit a cache of {}", n, past, next.cache->room()));
    const auto begin = static_cast<std::int32_t>(rows_), end = static_cast<std::int32_t>(rows_ + n);
    if (past == 0) {
      chunk_.spans.push_back({begin, end, begin, end});
      chunk_.longest = std::max(chunk_.longest, n);
    }
    caches_.sequences.push_back({next.cache, rows_, n});
    for (std::int64_t i = 0; i < n; ++i) chunk_.positions.push_back(static_cast<std::int32_t>(past + i));
    rows_ += n;
  }
  chunk_.rows = filled_up(rows_);
  chunk_.positions.resize(static_cast<std::size_t>(chunk_.rows));
  for (std::int64_t row = 0; row < chunk_.rows; ++row)
    chunk_.own_row.push_back(static_cast<std::int32_t>(row));
  chunk_.caches = &caches_;
  float* x = room(&x_, chunk_.rows * config_.hidden);
  for (const NextTokens& next : sequences)
    for (const std::int32_t id : next.ids) {
      if (id < 0 || id >= config_.vocab)
        return Status(StatusCode::kInvalidArgument, fmt::format("token id {} is outside the vocabulary", id));
      x = std::copy_n(embeddings_.data() + id * config_.hidden, config_.hidden, x);
    }
  std::fill(x, x_.data() + chunk_.rows * config_.hidden, 0.0f);
  return {};
}

Status ResidentTarget::step(const std::vector<NextTokens>& sequences, const OnStates& on_states) {
  EAGLET_RETURN_IF_ERROR(embed(sequences));
  if (on_states) on_states(0, x_.data());
  for (std::int64_t i = 0; i < config_.num_layers; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    caches_.layer = i;
    if (config_.latent.kv_rank > 0)
      latent_attention_layer(config_, rope_, layer.tensors, *layer.products, chunk_, x_.data(), &scratch_[0]);
    else
      attention_layer(config_, rope_, layer.tensors, *layer.products,
                      config_.window[static_cast<std::size_t>(i)], chunk_, x_.data(), &scratch_[0]);
    if (has_experts(config_, i))
      resident_expert_layer(config_, layer.tensors, rows_, *layer.products, x_.data(),
                            room(&normed_, chunk_.rows * config_.hidden), &scratch_);
    else
      mlp_layer(config_, layer.tensors, *layer.products, chunk_.rows, x_.data(), &scratch_[0]);
    if (on_states) on_states(i + 1, x_.data());
  }
  for (const CachedRows& rows : caches_.sequences) rows.cache->advance(rows.rows);
  compute_logits(sequences);
  return {};
}

void ResidentTarget::compute_logits(const std::vector<NextTokens>& sequences) {
  std::int64_t outputs = 0;
  for (const NextTokens& next : sequences) outputs += next.wants_logits;
  if (outputs == 0) return;
  const std::int64_t filled = filled_up(outputs);
  float* last = room(&last_, filled * config_.hidden);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const CachedRows& rows = caches_.sequences[i];
    if (sequences[i].wants_logits)
      last = std::copy_n(x_.data() + (rows.first_row + rows.rows - 1) * config_.hidden, config_.hidden, last);
  }
  std::fill(last, last_.data() + filled * config_.hidden, 0.0f);
  rms_norm(filled, config_.hidden, last_.data(), config_.hidden, final_norm_.data(), config_.rms_norm_eps,
           last_.data(), config_.hidden, room(&scratch_[0].inv, filled));
  head_->forward(filled, last_.data(), false, room(&logits_, filled * config_.vocab));
}

}  // namespace eaglet
