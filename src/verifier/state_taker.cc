#include "verifier/state_taker.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tensor/dtype.h"
#include "verifier/context.h"

namespace eaglet {
namespace {

constexpr std::int32_t kStateBatchTokens = 512;
constexpr std::string_view kLayerOutput = "l_out-";

/// Which tensor of the graph goes to which slot, and what has come of it in the current batch.
struct Tap {
  std::int32_t layer_index = 0;  // "l_out-<index>" is the state after index + 1 layers
  std::size_t slot = 0;
};

class LlamaStateTaker : public StateTaker {
 public:
  LlamaStateTaker(const Target& target, const StateTakerOptions& options)
      : target_(target), batch_(kStateBatchTokens) {
    hidden_ = static_cast<std::size_t>(target.facts().hidden);
    for (const std::int32_t id : options.aux_layers) taps_.push_back({id - 1, taps_.size()});
    last_layer_ = static_cast<std::int32_t>(target.facts().num_layers) - 1;
    taps_.push_back({last_layer_, taps_.size()});
  }

  Status start(std::int64_t longest_document) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>((longest_document + 255) / 256 * 256);
    params.n_seq_max = 1;
    params.n_batch = params.n_ubatch = kStateBatchTokens;
    params.n_threads = params.n_threads_batch = target_.threads();
    params.no_perf = true;
    params.cb_eval = &LlamaStateTaker::on_tensor;
    params.cb_eval_user_data = this;
    EAGLET_ASSIGN_OR_RETURN(context_, make_context(target_.model(), params, target_.facts().path));
    return Status();
  }

  Result<std::vector<std::uint16_t>> take(const std::vector<std::int32_t>& tokens) override {
    std::vector<std::uint16_t> states(tokens.size() * taps_.size() * hidden_);
    llama_memory_clear(llama_get_memory(context_.get()), false);
    for (std::size_t first = 0; first < tokens.size(); first += static_cast<std::size_t>(batch_.size())) {
      batch_.clear();
      for (std::size_t i = first; i < tokens.size() && batch_.room() > 0; ++i)
        batch_.add(tokens[i], static_cast<std::int32_t>(i), 0, true);
      EAGLET_RETURN_IF_ERROR(run_batch(states.data() + first * taps_.size() * hidden_));
    }
    return states;
  }

 private:
  /// to [batch tokens, taps, hidden].
  Status run_batch(std::uint16_t* to) {
    batch_states_ = to;
    seen_ = 0;
    tap_error_.clear();
    EAGLET_RETURN_IF_ERROR(decode(context_.get(), batch_, target_.facts().path));
    if (tap_error_.empty() && seen_ == taps_.size()) return {};
    return Status(StatusCode::kConfig,
                  tap_error_.empty()
                      ? fmt::format("only {} of {} layer outputs came out of the model", seen_, taps_.size())
                      : tap_error_,
                  target_.facts().path,
                  "this architecture cannot be extracted from; see docs/formats/gguf.md");
  }

  /// llama.cpp asks (`ask`) whether a tensor is wanted, and calls again when it is computed. False then ends
  /// the graph: after the last layer there is nothing we need, so the head (a fifth of the sample model) is
  /// not computed.
  static bool on_tensor(ggml_tensor* tensor, bool ask, void* self) {
    return static_cast<LlamaStateTaker*>(self)->take_tensor(tensor, ask);
  }

  bool take_tensor(ggml_tensor* tensor, bool ask) {
    const std::string_view name(tensor->name);
    if (!name.starts_with(kLayerOutput)) return false;
    const std::int32_t index = std::atoi(tensor->name + kLayerOutput.size());
    if (ask)
      return std::any_of(taps_.begin(), taps_.end(),
                         [index](const Tap& tap) { return tap.layer_index == index; });
    const auto rows = static_cast<std::size_t>(batch_.size());
    if (tensor->type != GGML_TYPE_F32 || tensor->ne[0] != static_cast<std::int64_t>(hidden_) ||
        tensor->ne[1] != batch_.size() || !ggml_is_contiguous(tensor)) {
      tap_error_ = fmt::format("layer output {} is {} [{}, {}], not f32 [{}, {}]", tensor->name,
                               ggml_type_name(tensor->type), tensor->ne[1], tensor->ne[0], rows, hidden_);
      return false;
    }
    row_buffer_.resize(rows * hidden_);
    ggml_backend_tensor_get(tensor, row_buffer_.data(), 0, row_buffer_.size() * sizeof(float));
    for (const Tap& tap : taps_) {
      if (tap.layer_index != index) continue;
      for (std::size_t row = 0; row < rows; ++row) {
        const float* from = row_buffer_.data() + row * hidden_;
        std::uint16_t* to = batch_states_ + (row * taps_.size() + tap.slot) * hidden_;
        for (std::size_t i = 0; i < hidden_; ++i) to[i] = f32_to_bf16(from[i]);
      }
      ++seen_;
    }
    return index != last_layer_;
  }

  const Target& target_;
  TokenBatch batch_;
  ContextPointer context_;
  std::vector<Tap> taps_;
  std::size_t hidden_ = 0;
  std::int32_t last_layer_ = 0;
  std::uint16_t* batch_states_ = nullptr;  // [batch tokens, taps, hidden]
  std::vector<float> row_buffer_;
  std::size_t seen_ = 0;
  std::string tap_error_;
};

}  // namespace

Result<std::unique_ptr<StateTaker>> StateTaker::create(const Target& target,
                                                       const StateTakerOptions& options) {
  const std::int64_t layers = target.facts().num_layers;
  for (std::size_t i = 0; i < options.aux_layers.size(); ++i) {
    const std::int32_t id = options.aux_layers[i];
    if (id < 1 || id > layers || (i > 0 && id <= options.aux_layers[i - 1]))
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("layer ids {} are not ascending in 1..{}", fmt::join(options.aux_layers, ", "), layers),
          "--target-layer-ids", "id k is the state after k layers; the usual choice is 2, L/2, L-3");
  }
  auto taker = std::make_unique<LlamaStateTaker>(target, options);
  EAGLET_RETURN_IF_ERROR(taker->start(options.longest_document));
  return std::unique_ptr<StateTaker>(std::move(taker));
}

}  // namespace eaglet
