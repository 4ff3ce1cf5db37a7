#include "target/resident_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.h"
#include "device/threads.h"
#include "ops/joined_rows.h"
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

Status ResidentTarget::check(const std::vector<NextTokens>& sequences) const {
  for (const NextTokens& next : sequences) {
    const auto n = static_cast<std::int64_t>(next.ids.size());
    if (n == 0 || next.outputs > n || next.cache->length() + n > next.cache->room())
      return Status(StatusCode::kInternal, fmt::format("{} tokens after {} do not fit a cache of {}", n,
                                                       next.cache->length(), next.cache->room()));
    for (const std::int32_t id : next.ids)
      if (id < 0 || id >= config_.vocab)
        return Status(StatusCode::kInvalidArgument, fmt::format("token id {} is outside the vocabulary", id));
  }
  return {};
}

namespace {

std::int64_t rows_of(const std::vector<NextTokens>& sequences, std::size_t first, std::size_t count) {
  std::int64_t rows = 0;
  for (std::size_t i = first; i < first + count; ++i)
    rows += static_cast<std::int64_t>(sequences[i].ids.size());
  return rows;
}

// Where groups of about the same number of rows begin, one for each thread. One group when there are too few
// rows for that, or when one of them would have much more than its share.
std::vector<std::size_t> group_begins(const std::vector<NextTokens>& sequences) {
  constexpr std::int64_t kLeastRows = 32;  // with fewer a thread only reads weights
  const std::int64_t threads = num_threads(), rows = rows_of(sequences, 0, sequences.size());
  if (threads == 1 || rows < threads * kLeastRows) return {0};
  std::vector<std::size_t> begins;
  std::int64_t before = 0, largest = 0, of_this = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (static_cast<std::int64_t>(begins.size()) < threads &&
        before * threads >= rows * static_cast<std::int64_t>(begins.size())) {
      begins.push_back(i);
      of_this = 0;
    }
    const std::int64_t n = rows_of(sequences, i, 1);
    before += n;
    of_this += n;
    largest = std::max(largest, of_this);
  }
  if (largest * threads * 4 > rows * 5) return {0};
  return begins;
}

}  // namespace

void ResidentTarget::make_groups(const std::vector<NextTokens>& sequences) {
  std::vector<std::size_t> begins = {0};
  if (config_.experts.count == 0)
    begins = group_begins(sequences);  // experts share the threads out themselves
  groups_.clear();
  std::int64_t first_row = 0;
  for (std::size_t g = 0; g < begins.size(); ++g) {
    Group group;
    group.first = begins[g];
    group.count = (g + 1 < begins.size() ? begins[g + 1] : sequences.size()) - begins[g];
    group.first_row = first_row;
    for (std::size_t i = group.first; i < group.first + group.count; ++i) {
      const auto n = static_cast<std::int64_t>(sequences[i].ids.size());
      const std::int64_t past = sequences[i].cache->length();
      const auto begin = static_cast<std::int32_t>(group.rows),
                 end = static_cast<std::int32_t>(group.rows + n);
      if (past == 0) {
        group.chunk.spans.push_back({begin, end, begin, end});
        group.chunk.longest = std::max(group.chunk.longest, n);
      }
      group.caches.sequences.push_back({sequences[i].cache, group.rows, n});
      for (std::int64_t t = 0; t < n; ++t)
        group.chunk.positions.push_back(static_cast<std::int32_t>(past + t));
      group.rows += n;
    }
    group.chunk.rows = filled_up(group.rows);
    group.chunk.positions.resize(static_cast<std::size_t>(group.chunk.rows));
    for (std::int64_t row = 0; row < group.chunk.rows; ++row)
      group.chunk.own_row.push_back(static_cast<std::int32_t>(row));
    first_row += group.chunk.rows;
    groups_.push_back(std::move(group));
  }
  for (Group& group : groups_) group.chunk.caches = &group.caches;
  room(&x_, first_row * config_.hidden);
}

void ResidentTarget::embed(const std::vector<NextTokens>& sequences) {
  for (const Group& group : groups_) {
    float* x = x_.data() + group.first_row * config_.hidden;
    for (std::size_t i = group.first; i < group.first + group.count; ++i)
      for (const std::int32_t id : sequences[i].ids)
        x = std::copy_n(embeddings_.data() + id * config_.hidden, config_.hidden, x);
    std::fill_n(x, (group.chunk.rows - group.rows) * config_.hidden, 0.0f);
  }
}

void ResidentTarget::run_group(Group* group, LayerScratch* scratch, const OnStates& on_states) {
  float* x = x_.data() + group->first_row * config_.hidden;
  const DocumentChunk& chunk = group->chunk;
  if (on_states) on_states(group->first, group->count, 0, x);
  for (std::int64_t i = 0; i < config_.num_layers; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    group->caches.layer = i;
    if (config_.latent.kv_rank > 0)
      latent_attention_layer(config_, rope_, layer.tensors, *layer.products, chunk, x, scratch);
    else
      attention_layer(config_, rope_, layer.tensors, *layer.products,
                      config_.window[static_cast<std::size_t>(i)], chunk, x, scratch);
    if (has_experts(config_, i))
      resident_expert_layer(config_, layer.tensors, group->rows, *layer.products, x,
                            room(&normed_, chunk.rows * config_.hidden), &scratch_);
    else
      mlp_layer(config_, layer.tensors, *layer.products, chunk.rows, x, scratch);
    if (on_states) on_states(group->first, group->count, i + 1, x);
  }
}

// With rows enough each thread takes its own sequences through all layers: threads then never wait for each
// other, which on a machine with other work costs more than anything else. With few rows all threads share
// every product, so that the weights are read once.
Status ResidentTarget::step(const std::vector<NextTokens>& sequences, const OnStates& on_states) {
  EAGLET_RETURN_IF_ERROR(check(sequences));
  make_groups(sequences);
  embed(sequences);
  if (groups_.size() == 1)
    run_group(&groups_[0], &scratch_[0], on_states);
  else
    parallel_items(static_cast<std::int64_t>(groups_.size()), [&](std::int64_t g, int thread) {
      run_group(&groups_[static_cast<std::size_t>(g)], &scratch_[static_cast<std::size_t>(thread)],
                on_states);
    });
  for (const NextTokens& next : sequences) next.cache->advance(static_cast<std::int64_t>(next.ids.size()));
  compute_logits(sequences);
  return {};
}

void ResidentTarget::compute_logits(const std::vector<NextTokens>& sequences) {
  std::int64_t outputs = 0;
  for (const NextTokens& next : sequences) outputs += next.outputs;
  if (outputs == 0) return;
  const std::int64_t filled = filled_up(outputs);
  float* last = room(&last_, filled * config_.hidden);
  for (const Group& group : groups_)
    for (std::size_t i = 0; i < group.count; ++i) {
      const std::int64_t wanted = sequences[group.first + i].outputs;
      const CachedRows& rows = group.caches.sequences[i];
      const std::int64_t row = group.first_row + rows.first_row + rows.rows - wanted;
      last = std::copy_n(x_.data() + row * config_.hidden, wanted * config_.hidden, last);
    }
  std::fill(last, last_.data() + filled * config_.hidden, 0.0f);
  rms_norm(filled, config_.hidden, last_.data(), config_.hidden, final_norm_.data(), config_.rms_norm_eps,
           last_.data(), config_.hidden, room(&scratch_[0].inv, filled));
  head_->forward(filled, last_.data(), false, room(&logits_, filled * config_.vocab));
}

}  // namespace eaglet
