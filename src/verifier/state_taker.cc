#include "verifier/state_taker.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string_view>

#include "tensor/dtype.h"
#include "verifier/context.h"

namespace eaglet {
namespace {

constexpr std::int32_t kStateBatchTokens = 512;
constexpr std::uint32_t kMaxSequences = 64;
constexpr std::string_view kLayerOutput = "l_out-";

/// Which tensor of the graph goes to which slot, and what has come of it in the current batch.
struct Tap {
  std::int32_t layer_index = 0;  // "l_out-<index>" is the state after index + 1 layers
  std::size_t slot = 0;
};

struct Document {
  std::size_t tag = 0;
  std::vector<std::int32_t> tokens;
  std::int32_t sequence = 0;
  std::size_t fed = 0, taken = 0;  // tokens given to batches; tokens whose states have arrived
  std::vector<std::uint16_t> states;
};

class LlamaStateTaker : public StateTaker {
 public:
  LlamaStateTaker(const Target& target, const StateTakerOptions& options, Done done)
      : target_(target), done_(std::move(done)), batch_(kStateBatchTokens) {
    hidden_ = static_cast<std::size_t>(target.facts().hidden);
    for (const std::int32_t id : options.aux_layers) taps_.push_back({id - 1, taps_.size()});
    last_layer_ = static_cast<std::int32_t>(target.facts().num_layers) - 1;
    taps_.push_back({last_layer_, taps_.size()});
    // A recurrent cache reorders the tokens of a batch that holds several sequences; then rows would be mixed
    // up.
    sequences_ =
        llama_model_is_recurrent(target.model()) || llama_model_is_hybrid(target.model()) ? 1 : kMaxSequences;
  }

  Status start(std::int64_t longest_document) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>((longest_document + kStateBatchTokens + 255) / 256 * 256);
    params.n_seq_max = sequences_;
    params.kv_unified = true;  // keeps the order of rows, and lets short and long documents share the cache
    params.n_batch = params.n_ubatch = kStateBatchTokens;
    params.n_threads = params.n_threads_batch = target_.threads();
    params.no_perf = true;
    params.cb_eval = &LlamaStateTaker::on_tensor;
    params.cb_eval_user_data = this;
    EAGLET_ASSIGN_OR_RETURN(context_, make_context(target_.model(), params, target_.facts().path));
    for (std::uint32_t i = sequences_; i-- > 0;) free_sequences_.push_back(static_cast<std::int32_t>(i));
    return Status();
  }

  Status add(std::size_t tag, const std::vector<std::int32_t>& tokens) override {
    Document document{tag, tokens, -1, 0, 0, {}};
    document.states.resize(tokens.size() * taps_.size() * hidden_);
    open_.push_back(std::move(document));
    while (open_.back().fed < open_.back().tokens.size()) {
      if (open_.back().sequence < 0 && free_sequences_.empty()) {
        EAGLET_RETURN_IF_ERROR(run_batch());
        continue;
      }
      feed(&open_.back());
      if (batch_.room() == 0) EAGLET_RETURN_IF_ERROR(run_batch());
    }
    return Status();
  }

  Status finish() override {
    if (batch_.size() > 0) EAGLET_RETURN_IF_ERROR(run_batch());
    // The next document begins at the cache's first cell again: its states do not depend on those before.
    llama_memory_clear(llama_get_memory(context_.get()), false);
    return Status();
  }

 private:
  void feed(Document* document) {
    if (document->sequence < 0) {
      document->sequence = free_sequences_.back();
      free_sequences_.pop_back();
    }
    while (document->fed < document->tokens.size() && batch_.room() > 0) {
      batch_.add(document->tokens[document->fed], static_cast<std::int32_t>(document->fed),
                 document->sequence, true);
      ++document->fed;
    }
  }

  Status run_batch() {
    batch_states_.resize(static_cast<std::size_t>(batch_.size()) * taps_.size() * hidden_);
    seen_ = 0;
    tap_error_.clear();
    EAGLET_RETURN_IF_ERROR(decode(context_.get(), batch_, target_.facts().path));
    if (!tap_error_.empty() || seen_ != taps_.size())
      return Status(
          StatusCode::kConfig,
          tap_error_.empty()
              ? fmt::format("only {} of {} layer outputs came out of the model", seen_, taps_.size())
              : tap_error_,
          target_.facts().path, "this architecture cannot be extracted from; see docs/formats/gguf.md");
    batch_.clear();
    return hand_out();
  }

  /// The rows of the batch, in order, belong to the open documents, in order.
  Status hand_out() {
    const std::size_t row_values = taps_.size() * hidden_;
    std::size_t row = 0;
    for (Document& document : open_) {
      const std::size_t rows = document.fed - document.taken;
      std::copy_n(batch_states_.data() + row * row_values, rows * row_values,
                  document.states.data() + document.taken * row_values);
      document.taken = document.fed;
      row += rows;
    }
    while (!open_.empty() && open_.front().taken == open_.front().tokens.size()) {
      Document document = std::move(open_.front());
      open_.pop_front();
      llama_memory_seq_rm(llama_get_memory(context_.get()), document.sequence, -1, -1);
      free_sequences_.push_back(document.sequence);
      EAGLET_RETURN_IF_ERROR(done_({document.tag, std::move(document.states)}));
    }
    return Status();
  }

  /// llama.cpp asks (`ask`) whether a tensor is wanted, and calls again when it is computed. False then ends
  /// the graph: after the last layer there is nothing we need, so the head (a fifth of the sample model) is
  /// not computed.
  static bool on_tensor(ggml_tensor* tensor, bool ask, void* self) {
    return static_cast<LlamaStateTaker*>(self)->take(tensor, ask);
  }

  bool take(ggml_tensor* tensor, bool ask) {
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
        std::uint16_t* to = batch_states_.data() + (row * taps_.size() + tap.slot) * hidden_;
        for (std::size_t i = 0; i < hidden_; ++i) to[i] = f32_to_bf16(from[i]);
      }
      ++seen_;
    }
    return index != last_layer_;
  }

  const Target& target_;
  Done done_;
  TokenBatch batch_;
  ContextPointer context_;
  std::vector<Tap> taps_;
  std::size_t hidden_ = 0;
  std::int32_t last_layer_ = 0;
  std::uint32_t sequences_ = 1;
  std::vector<std::int32_t> free_sequences_;
  std::deque<Document> open_;                // in the order of add()
  std::vector<std::uint16_t> batch_states_;  // [batch tokens, taps, hidden]
  std::vector<float> row_buffer_;
  std::size_t seen_ = 0;
  std::string tap_error_;
};

}  // namespace

Result<std::unique_ptr<StateTaker>> StateTaker::create(const Target& target, const StateTakerOptions& options,
                                                       Done done) {
  const std::int64_t layers = target.facts().num_layers;
  for (std::size_t i = 0; i < options.aux_layers.size(); ++i) {
    const std::int32_t id = options.aux_layers[i];
    if (id < 1 || id > layers || (i > 0 && id <= options.aux_layers[i - 1]))
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("layer ids {} are not ascending in 1..{}", fmt::join(options.aux_layers, ", "), layers),
          "--target-layer-ids", "id k is the state after k layers; the usual choice is 2, L/2, L-3");
  }
  auto taker = std::make_unique<LlamaStateTaker>(target, options, std::move(done));
  EAGLET_RETURN_IF_ERROR(taker->start(options.longest_document));
  return std::unique_ptr<StateTaker>(std::move(taker));
}

}  // namespace eaglet
