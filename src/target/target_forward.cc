#include "target/target_forward.h"

#include <algorithm>

#include "base/clock.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "device/gemm.h"
#include "device/threads.h"
#include "formats/json.h"
#include "ops/joined_rows.h"
#include "ops/rms_norm.h"
#include "ops/rows.h"
#include "target/expert_layer.h"
#include "target/layer_size.h"

namespace eaglet {
namespace {

constexpr std::int64_t kChunkRows = 512;  // of a thread; what a layer needs for them stays small

}  // namespace

std::vector<DocumentChunk> chunk_documents(const std::vector<std::int64_t>& lengths, std::int64_t rows) {
  std::vector<DocumentChunk> chunks;
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    if (chunks.empty() || chunks.back().rows + length > rows) {
      chunks.emplace_back();
      chunks.back().first_row = first;
    }
    DocumentChunk& chunk = chunks.back();
    const auto begin = static_cast<std::int32_t>(chunk.rows),
               end = static_cast<std::int32_t>(chunk.rows + length);
    chunk.spans.push_back({begin, end, begin, end});
    for (std::int32_t row = begin; row < end; ++row) {
      chunk.positions.push_back(row - begin);
      chunk.own_row.push_back(row);
    }
    chunk.rows += length;
    chunk.longest = std::max(chunk.longest, length);
    first += length;
  }
  return chunks;
}

Result<TargetFiles> open_target_files(const std::string& path) {
  if (!is_directory(path)) {
    EAGLET_ASSIGN_OR_RETURN(TargetConfig config, target_config_from_gguf(path));
    EAGLET_ASSIGN_OR_RETURN(auto weights, open_gguf_weights(path, config));
    return TargetFiles{std::move(config), TargetTensors(std::move(weights), path)};
  }
  const std::string config_path = path + "/config.json";
  EAGLET_ASSIGN_OR_RETURN(const Json json, read_json_file(config_path));
  Result<TargetConfig> config = target_config_from_json(json);
  if (!config.ok()) return config.status().at(config_path);
  EAGLET_ASSIGN_OR_RETURN(auto weights, open_folder_weights(path, config->quantisation));
  return TargetFiles{std::move(*config), TargetTensors(std::move(weights), path)};
}

Result<std::unique_ptr<TargetForward>> TargetForward::open(const std::string& path,
                                                           const ForwardOptions& options) {
  EAGLET_ASSIGN_OR_RETURN(TargetFiles files, open_target_files(path));
  return std::unique_ptr<TargetForward>(
      new TargetForward(std::move(files.config), std::move(files.tensors), options));
}

Status TargetForward::embed(const std::vector<const std::vector<std::int32_t>*>& documents) {
  std::vector<std::int64_t> lengths;
  std::vector<std::int32_t> ids;
  for (const auto* document : documents) {
    lengths.push_back(static_cast<std::int64_t>(document->size()));
    ids.insert(ids.end(), document->begin(), document->end());
  }
  for (const std::int32_t id : ids)
    if (id < 0 || id >= config_.vocab)
      return Status(StatusCode::kInvalidArgument, "a token id is outside the target's vocabulary",
                    tensors_.path());
  if (kept_embeddings_.empty()) {
    EAGLET_ASSIGN_OR_RETURN(kept_embeddings_,
                            tensors_.read("model.embed_tokens.weight", {config_.vocab, config_.hidden}));
  }
  tokens_ = static_cast<std::int64_t>(ids.size());
  const auto bytes = static_cast<std::uint64_t>(tokens_ * config_.hidden) * sizeof(float);
  EAGLET_RETURN_IF_ERROR(x_.reserve(options_.spill_directory, bytes));
  if (config_.experts.count > 0) EAGLET_RETURN_IF_ERROR(normed_.reserve(options_.spill_directory, bytes));
  gather_rows(tokens_, config_.hidden, kept_embeddings_.data(), ids.data(), x_.as<float>());
  if (!options_.keep_weights) std::vector<float>().swap(kept_embeddings_);
  chunks_ = chunk_documents(lengths, kChunkRows);
  return {};
}

std::future<Result<LayerTensors>> TargetForward::read_ahead(std::int64_t layer) {
  return std::async(std::launch::async, [this, layer] { return read_layer(config_, layer, tensors_); });
}

Result<const TargetForward::PackedLayer*> TargetForward::pack(std::int64_t layer,
                                                              std::future<Result<LayerTensors>>* read) {
  PackedLayer& packed = keeps(layer) ? kept_[static_cast<std::size_t>(layer)] : under_way_;
  if (packed.own != nullptr) return &packed;
  const double start = monotonic_seconds();
  Result<LayerTensors> weights = read->get();
  if (layer > 0) tensors_.add_waited(monotonic_seconds() - start);
  if (!weights.ok()) return weights.status();
  packed.tensors = std::move(*weights);
  packed.products = &products_;
  if (keeps(layer)) {
    packed.own = std::make_unique<LayerProducts>(config_, options_);
    packed.products = packed.own.get();
  }
  packed.products->load(&packed.tensors);
  return &packed;
}

void TargetForward::run_chunk(std::int64_t layer, const PackedLayer& packed, const DocumentChunk& chunk,
                              LayerScratch* scratch) {
  const LayerTensors& weights = packed.tensors;
  const LayerProducts& products = *packed.products;
  float* x = x_.as<float>() + chunk.first_row * config_.hidden;
  if (config_.latent.kv_rank > 0)
    latent_attention_layer(config_, rope_, weights, products, chunk, x, scratch);
  else
    attention_layer(config_, rope_, weights, products, config_.window[static_cast<std::size_t>(layer)], chunk,
                    x, scratch);
  if (!has_experts(config_, layer)) mlp_layer(config_, weights, products, chunk.rows, x, scratch);
  x_.release(static_cast<std::uint64_t>(chunk.first_row * config_.hidden) * sizeof(float),
             static_cast<std::uint64_t>(chunk.rows * config_.hidden) * sizeof(float));
}

// A thread takes a whole chunk through the layer: products of so few rows are over too soon for threads to
// share one. A long document has all threads to itself. Which of the two it is hangs on the document alone.
Status TargetForward::run_layer(std::int64_t layer, const PackedLayer& packed) {
  std::vector<const DocumentChunk*> side_by_side;
  for (const DocumentChunk& chunk : chunks_) {
    if (chunk.rows <= kChunkRows) {
      side_by_side.push_back(&chunk);
      continue;
    }
    if (interrupted()) break;
    run_chunk(layer, packed, chunk, &scratch_[0]);
  }
  parallel_items(static_cast<std::int64_t>(side_by_side.size()), [&](std::int64_t i, int thread) {
    if (!interrupted())
      run_chunk(layer, packed, *side_by_side[static_cast<std::size_t>(i)],
                &scratch_[static_cast<std::size_t>(thread)]);
  });
  if (interrupted()) return Status(StatusCode::kInterrupted, "stopped by a signal");
  if (!has_experts(config_, layer)) return {};
  EAGLET_RETURN_IF_ERROR(expert_layer(config_, layer, packed.tensors, tokens_, tensors_, *packed.products,
                                      x_.as<float>(), normed_.as<float>(), &scratch_));
  const auto bytes = static_cast<std::uint64_t>(tokens_ * config_.hidden) * sizeof(float);
  x_.release(0, bytes);
  normed_.release(0, bytes);
  return {};
}

Status TargetForward::run(const std::vector<const std::vector<std::int32_t>*>& documents,
                          std::int64_t last_layer, const OnStates& on_states) {
  EAGLET_RETURN_IF_ERROR(embed(documents));
  EAGLET_RETURN_IF_ERROR(on_states(0, x_.as<float>()));
  std::future<Result<LayerTensors>> next;
  const auto begin_reading = [&](std::int64_t layer) {
    if (layer < last_layer && !kept(layer)) next = read_ahead(layer);
  };
  begin_reading(0);
  for (std::int64_t layer = 0; layer < last_layer; ++layer) {
    EAGLET_ASSIGN_OR_RETURN(const PackedLayer* packed, pack(layer, &next));
    begin_reading(layer + 1);
    EAGLET_RETURN_IF_ERROR(run_layer(layer, *packed));
    EAGLET_RETURN_IF_ERROR(on_states(layer + 1, x_.as<float>()));
  }
  return {};
}

Status TargetForward::logits(std::int64_t n, const float* x, std::vector<float>* out) {
  EAGLET_ASSIGN_OR_RETURN(const auto norm, tensors_.read("model.norm.weight", {config_.hidden}));
  const char* head = config_.tied_head ? "model.embed_tokens.weight" : "lm_head.weight";
  EAGLET_ASSIGN_OR_RETURN(const auto weights, tensors_.read(head, {config_.vocab, config_.hidden}));
  float* normed = room(&scratch_[0].normed, n * config_.hidden);
  rms_norm(n, config_.hidden, x, config_.hidden, norm.data(), config_.rms_norm_eps, normed, config_.hidden,
           room(&scratch_[0].inv, n));
  out->resize(static_cast<std::size_t>(n * config_.vocab));
  gemm(Transpose::kNo, Transpose::kYes, n, config_.vocab, config_.hidden, 1.0f, normed, config_.hidden,
       weights.data(), config_.hidden, 0.0f, out->data(), config_.vocab);
  return {};
}

std::uint64_t TargetForward::bytes_per_token() const {
  return static_cast<std::uint64_t>(4 * config_.hidden * (config_.experts.count > 0 ? 2 : 1));
}

// What is read ahead is fp32; what is computed with is packed. While a layer is packed its fp32 values are
// there and the next one is not read yet.
std::uint64_t TargetForward::fixed_bytes(std::int64_t longest_document) const {
  const LayerSize size = layer_size(config_);
  const bool experts = config_.experts.count > 0;
  const auto ahead = static_cast<std::int64_t>(experts_read_ahead());
  const std::int64_t packed = options_.compute_type == ComputeType::kBf16 ? 2 : 4;
  std::int64_t weights = 4 * (size.attention + std::max(size.mlp, size.shared)) +
                         packed * (size.attention + size.mlp + size.shared);
  if (experts) weights += (4 * ahead + packed) * size.expert;
  const std::int64_t embeddings = 4 * config_.vocab * config_.hidden;  // before the first layer
  return static_cast<std::uint64_t>(std::max(weights, embeddings) +
                                    4 * std::max(num_threads() * kChunkRows, longest_document) * size.row) +
         products_.workspace_bytes();
}

double TargetForward::flops_per_token() const {
  const LayerSize size = layer_size(config_);
  double weights = 0;
  for (std::int64_t layer = 0; layer < config_.num_layers; ++layer)
    weights += static_cast<double>(
        size.attention +
        (has_experts(config_, layer) ? size.shared + config_.experts.per_token * size.expert : size.mlp));
  return 2 * weights;
}

}  // namespace eaglet
